"""`anabranch report`: the last ten minutes of a running system as one HTML file."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path

from anabranch.cli.show.tables import err
from anabranch.coordinator.service.state import http_in
from anabranch.errors import ConfigError, SiteError

ASK_S = 60.0


def report(out: Path, state: Path) -> None:
    page = _fetched(state)
    try:
        out.write_bytes(page)
    except OSError as error:
        raise ConfigError(f"cannot write: {error.strerror}", place=str(out)) from None
    err.print(f"{out}: {len(page) // 1000:,} KB; open it in a browser")


def _fetched(state: Path) -> bytes:
    url, credentials = http_in(state)
    request = urllib.request.Request(f"{url}api/report")
    request.add_header("Authorization", f"Bearer {credentials.token}")
    trusted = ssl.create_default_context(cafile=credentials.tls_ca) if credentials.tls_ca else None
    try:
        with urllib.request.urlopen(request, timeout=ASK_S, context=trusted) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError) as error:
        remedy = "Is it still up? `anabranch status` tells."
        raise SiteError(f"{url} does not answer: {error}", remedy=remedy) from None
