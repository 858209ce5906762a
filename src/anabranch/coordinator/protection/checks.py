"""What can be said of a query's STANDBY before it runs."""

from __future__ import annotations

from anabranch.coordinator.deploy.deploy import Definitions
from anabranch.coordinator.protection.protected import settled_sink
from anabranch.plan.catalog import QueryDef


def unprotected_sink(query: QueryDef, known: Definitions) -> str:
    """A warning if the query is protected and where it writes is not; else empty.

    Where one of its own sources is, nothing more would be lost by the death of that site."""
    site = settled_sink(query) if query.standby and query.sink else None
    if site is None or site in _source_sites(query, known):
        return ""
    return (
        f"warning: what {query.name} writes stays at {site}, which nothing protects: while that"
        " site is away results wait. kafka() and postgres() go where the query goes."
    )


def _source_sites(query: QueryDef, known: Definitions) -> set[str]:
    """Where the streams and tables are that it comes from in the end."""
    found: set[str] = set()
    for name in query.reads:
        one = known.get(name)
        if isinstance(one, QueryDef):
            found |= _source_sites(one, known)
        elif one is not None:
            found.add(getattr(one, "site", ""))
    return found
