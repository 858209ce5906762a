"""What a running system gives over HTTP: a report in one file, and an address that lets a browser
in.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from anabranch.cli.show.tables import err
from anabranch.coordinator.service.state import http_in
from anabranch.errors import ConfigError, SiteError

ASK_S = 60.0


def report(out: Path, state: Path) -> None:
    """Writes the last ten minutes as one file."""
    _, page = _asked(state, "GET", "api/report")
    try:
        out.write_bytes(page)
    except OSError as error:
        raise ConfigError(f"cannot write: {error.strerror}", place=str(out)) from None
    err.print(f"{out}: {len(page) // 1000:,} KB; open it in a browser")


def dashboard(state: Path) -> None:
    url, answer = _asked(state, "POST", "api/invitations")
    print(f"{url}?invitation={json.loads(answer)['invitation']}")


def _asked(state: Path, method: str, path: str) -> tuple[str, bytes]:
    """The address that was asked, and its answer."""
    url, credentials = http_in(state)
    request = urllib.request.Request(f"{url}{path}", method=method)
    request.add_header("Authorization", f"Bearer {credentials.token}")
    trusted = ssl.create_default_context(cafile=credentials.tls_ca) if credentials.tls_ca else None
    try:
        with urllib.request.urlopen(request, timeout=ASK_S, context=trusted) as answer:
            return url, bytes(answer.read())
    except (urllib.error.URLError, OSError) as error:
        remedy = "Is it still up? `anabranch status` tells."
        raise SiteError(f"{url} does not answer: {error}", remedy=remedy) from None
