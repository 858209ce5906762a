"""What a reader's token opens: only the requests that stand here.

A reader causes nothing at a site but a bounded number of tails: what it asks is answered from the
catalog and from what the sites reported last. No source or sink is looked at for it, no plan is
made, no connection to anything outside of the system is opened.
"""

from __future__ import annotations

import re

READERS_MAY = (
    ("GET", "/api/system"),
    ("GET", "/api/queries/{name}"),
    ("GET", "/api/queries/{name}/explain"),
    ("POST", "/api/explain"),  # of a query that is there, by its name
    ("GET", "/api/history"),
    ("GET", "/api/network"),
    ("GET", "/api/timeline"),
    ("GET", "/api/report"),
    ("GET", "/api/metrics"),
    ("GET", "/api/sites/{name}/metrics"),
    ("GET", "/api/targets"),
    ("GET", "/api/events"),
    ("GET", "/api/tail/{name}"),  # it sees the data; so many at once as `limits` says
    ("GET", "/api/docs"),
    ("GET", "/api/openapi.json"),
)


def _pattern(method: str, path: str) -> str:
    return f"{method} {path.replace('{name}', '[^/]+')}"


_MAY = re.compile("|".join(_pattern(method, path) for method, path in READERS_MAY))


def reader_may(method: str, path: str) -> bool:
    """Whether a reader may make this request. Who may GET may also HEAD."""
    return _MAY.fullmatch(f"{'GET' if method == 'HEAD' else method} {path}") is not None
