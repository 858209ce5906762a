"""A process that waits, with its Spark up, to become a site that has died. `up` starts it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from anabranch.cli.sites.site import OwnProcess, run_site
from anabranch.config.model import SiteSettings
from anabranch.link.gate import Credentials
from anabranch.scratch import scratch_folder
from anabranch.spark.session import warm_workers


def run_spare(token: str, parent: int | None) -> None:
    """Orders come on standard input, a line each: of which kind its Spark is to be, and, if ever it
    is needed, which site it becomes. It ends with whoever would say so."""
    if (kind := _order()) is None:
        return
    process = OwnProcess("a spare", SiteSettings(**kind), scratch_folder())
    order = None
    try:
        warm_workers(process.spark)
        order = _order()
    finally:
        if order is None:
            process.close()
    if order is None:
        return
    _write_to(Path(order.pop("log")), order.pop("output"))
    state = Path(order.pop("state"))
    state.mkdir(parents=True, exist_ok=True)
    coordinator = order.pop("coordinator")
    name = order.pop("site")
    credentials = Credentials(token, **order)
    run_site(name, coordinator, credentials, parent=parent, state=state, process=process)


def _order() -> dict[str, Any] | None:
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def _write_to(log: Path, descriptors: list[int]) -> None:
    """From now on these go where the site's would."""
    with log.open("ab") as file:
        for number in descriptors:
            os.dup2(file.fileno(), number)
