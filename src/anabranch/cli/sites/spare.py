"""A process that waits, with its Spark up, to become a site that has died. `up` starts it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from anabranch.cli.sites.site import SiteSpark, run_site
from anabranch.config.model import SiteSettings
from anabranch.disk.own import own_folder
from anabranch.link.gate import Credentials
from anabranch.scratch import scratch_folder
from anabranch.spark.session import warm_workers


def run_spare(token: str) -> None:
    """Reads orders on standard input, a line each: which kind of Spark to start, and, if it is ever
    needed, which site to become. It ends with the process that gives the orders.
    """
    if (kind := _order()) is None:
        return
    spark = SiteSpark("a spare", SiteSettings(**kind), scratch_folder())
    try:
        warm_workers(spark.session)
        if order := _order():
            _become(order, token, spark)
    finally:
        spark.close()


def _become(order: dict[str, Any], token: str, spark: SiteSpark) -> None:
    _write_to(Path(order.pop("log")))
    state, coordinator, name = (order.pop(key) for key in ("state", "coordinator", "site"))
    own_folder(Path(state))
    run_site(name, coordinator, Credentials(token, **order), state=Path(state), spark=spark)


def _order() -> dict[str, Any] | None:
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def _write_to(log: Path) -> None:
    """From now on all output of this process goes to the site's log. (The JVM's output does
    not.)
    """
    with log.open("ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
