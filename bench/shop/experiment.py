"""The shop over a day's mishaps: the system is stopped and started, and its office is killed.

Everything is done as a user does it: `anabranch up`, `sql`, `down`, `kill`, in processes of their
own. What is in the tables at the end is compared with what Kafka holds, computed independently.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from anabranch.errors import TaskError
from anabranch.scratch import scratch_folder
from bench.shop import totals
from bench.shop.expected import COLUMNS, WIDTH_MS, Row, differences, expected
from bench.shop.queries import AT_ONCE, CLUSTER, SINKS, script
from bench.shop.sales import PRODUCTS, STORES, Tills, sold
from bench.systems.kafka import Broker
from bench.systems.postgres import Postgres
from bench.systems.system import Keep, Progress

LIMIT_S = 20.0
"""From the start of `anabranch up` to the first new result."""
PATIENCE_S = 240.0
LOOK_S = 0.1


class Shop:
    """The servers, the tills, and a system in `folder` that a user would run."""

    def __init__(self, folder: Path, broker: Broker, database: Postgres) -> None:
        self.folder = folder
        self.broker = broker
        self.database = database
        self.endpoint = folder / ".anabranch" / "coordinator.json"
        self.ended: datetime | None = None
        """The end of the last window in which something was sold."""
        self._up: subprocess.Popen[bytes] | None = None
        self._prepare()

    def _prepare(self) -> None:
        self.database.execute("CREATE TABLE product (product BIGINT, name TEXT)")
        for number in range(1, PRODUCTS + 1):
            self.database.execute(f"INSERT INTO product VALUES ({number}, 'product {number}')")
        (self.folder / "cluster.toml").write_text(CLUSTER)
        (self.folder / "shop.sql").write_text(script(self.broker.servers, self.database.url))
        shutil.copy(str(totals.__file__), self.folder / "totals.py")

    def up(self) -> None:
        """Begin to start it; it need not be up yet."""
        with (self.folder / "up.log").open("ab") as log:
            self._up = subprocess.Popen(
                self._command("up", "--cluster", "cluster.toml", "--http", "off"),
                cwd=self.folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def down(self) -> None:
        self.run("down")
        assert self._up
        self._up.wait(60)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            self._command(*words),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if done.returncode:
            raise TaskError(f"anabranch {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "anabranch", *words]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "--json"))
        return found

    def said(self) -> list[str]:
        """All that `up` has printed."""
        return (self.folder / "up.log").read_text().splitlines()

    def rows(self, table: str) -> Counter[Row]:
        until = f"WHERE window_end <= '{self.ended}'" if table == "so_far" else ""
        return Counter(self.database.execute(f"SELECT {COLUMNS[table]} FROM {table} {until}"))

    def reached(self) -> dict[str, int]:
        """How many results each table has."""
        tables = " UNION ALL ".join(
            f"SELECT '{table}', coalesce(max(_pos), 0) FROM {table}" for table in SINKS
        )
        return dict(self.database.execute(tables))

    def close(self) -> None:
        if self._up and self._up.poll() is None:
            self._up.terminate()
            self._up.wait(60)


@contextmanager
def open_shop(progress: Progress) -> Iterator[Shop]:
    folder = scratch_folder("shop-")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        progress("Starting Kafka and PostgreSQL …")
        broker, database = Broker(), Postgres()
        for server in (broker, database):
            stack.callback(server.remove)
            server.start()
        shop = Shop(folder, broker, database)
        stack.callback(shop.close)
        yield shop


def run(progress: Progress, keep: Keep, seconds: float, per_s: float) -> dict[str, Any]:
    with open_shop(progress) as shop:
        tills = Tills(shop.broker, per_s)
        try:
            progress("Starting the system …")
            shop.up()
            _until(shop.endpoint.exists, "a coordinator", shop)
            shop.run("sql", "-f", "shop.sql")
            progress(f"Selling for {seconds:g} s …")
            _until(lambda: all(shop.reached().values()), "a result of every query")
            time.sleep(seconds)
            rows = []
            for mishap in (_down_and_up, _office_killed):
                rows.append(mishap(shop, tills, progress))
                keep(rows[-1])
        finally:
            tills.close()
        progress("Comparing with what Kafka holds …")
        return {"rows": rows, "sales": tills.sold, "tables": _compared(shop)}


def _down_and_up(shop: Shop, tills: Tills, progress: Progress) -> dict[str, Any]:
    progress("down …")
    shop.down()
    before = len(shop.said())
    progress("up …")
    return {"what": "down, up", **_watched(shop, tills, shop.up), "said": shop.said()[before:]}


def _office_killed(shop: Shop, tills: Tills, progress: Progress) -> dict[str, Any]:
    progress("killing the office …")
    before = len(shop.said())
    return {
        "what": "kill -9 office",
        **_watched(shop, tills, lambda: shop.run("kill", "office")),
        "said": shop.said()[before:],
    }


def _watched(shop: Shop, tills: Tills, mishap: Callable[[], object]) -> dict[str, Any]:
    """Seconds from the mishap to the first new result, to one of every query, and until every sale
    of before is in the tables that have one for each."""
    before = shop.reached()
    begun = time.monotonic()
    mishap()
    sold_before = tills.sold
    first: dict[str, float] = {}

    def all_new() -> bool:
        for table, position in shop.reached().items():
            if position > before[table]:
                first.setdefault(table, time.monotonic() - begun)
        return len(first) == len(SINKS)

    _until(all_new, "a new result of every query", shop)
    _until(lambda: shop.reached()["totals"] >= sold_before, "all sales of before", shop)
    return {
        "first_s": round(min(first.values()), 1),
        "each_sale_s": round(max(first[table] for table in AT_ONCE), 1),
        "windows_s": round(max(first.values()), 1),
        "caught_up_s": round(time.monotonic() - begun, 1),
    }


def _compared(shop: Shop) -> dict[str, dict[str, int]]:
    sales = {store: list(sold(shop.broker, store)) for store in STORES}
    wanted = expected(sales)
    shop.ended = max(row[-1] for row in wanted["so_far"])

    def faults() -> dict[str, dict[str, int]]:
        return {table: differences(wanted[table], shop.rows(table)) for table in SINKS}

    def complete() -> bool:
        return not any(found["missing"] for found in faults().values())

    deadline = time.monotonic() + 3 * WIDTH_MS / 1000 + 30
    while not complete() and time.monotonic() < deadline:
        time.sleep(1)
    return {table: {"rows": wanted[table].total(), **found} for table, found in faults().items()}


def _until(true: Callable[[], bool], what: str, shop: Shop | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            told = "\n".join(shop.said()[-30:]) if shop else ""
            raise TaskError(f"{what}: not within {PATIENCE_S:g} s\n{told}")
        time.sleep(LOOK_S)


def check(result: dict[str, Any]) -> None:
    """Raises TaskError if a row is wrong, or the first new result came too late."""
    bad = [
        table
        for table, row in result["tables"].items()
        if any(row[fault] for fault in ("missing", "twice", "wrong"))
    ]
    if bad:
        raise TaskError(f"the tables {', '.join(bad)} are not what Kafka holds")
    for row in result["rows"]:
        if row["first_s"] > LIMIT_S:
            raise TaskError(f"{row['what']}: the first new result came after {row['first_s']} s")
