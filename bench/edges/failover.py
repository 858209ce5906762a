"""PostgreSQL is failed over to a copy that lacks what the first server committed last.

A query writes its results into a real server, and a real copy of it follows. The copy is cut off, a
second later the first server is killed, and the copy becomes the server: what was acknowledged
between the two is not there. The query has to refuse to go on, with both positions; then the
statement that its message gives is executed, as a person would, with the missing rows put back by
hand before or without them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from anabranch.errors import TaskError
from bench.systems.installed import Installed
from bench.systems.postgres import Postgres
from bench.systems.system import Keep, Progress, Status

TPS, LAG_S = 200, 1.5
SCRIPT = f"""
CREATE STREAM r (n BIGINT) FROM rate(tps = {TPS}, n = 'value');
CREATE QUERY q AS SELECT n, n * 2 AS m FROM r WHERE n % 3 <> 0
  INTO postgres(url = '{{url}}', table = 'out');
"""
_REFUSED = re.compile(
    r"up to position ([\d,]+), but those up to ([\d,]+) were acknowledged.*"
    r"(RESUME QUERY q WITHOUT (\d+) TO (\d+);)"
)
Row = tuple[int, int, int]
READ = "SELECT _pos, n, m FROM out ORDER BY _pos"


@dataclass(frozen=True)
class Refusal:
    """What status says: up to where the results are there, up to where they were acknowledged, and
    the statement that has the query go on."""

    there: int
    acknowledged: int
    statement: str


class Pair:
    """A server and its copy. Clients are told both, and use whichever takes writes."""

    def __init__(self, stack: ExitStack) -> None:
        self.first = Postgres(synchronous_commit="on")
        stack.callback(self.first.remove)
        self.first.start()
        self.copy = Postgres(copy_of=self.first)
        stack.callback(self.copy.remove)
        self.copy.start()
        ports = f"{self.first.port},{self.copy.port}"
        self.url = (
            f"postgresql://test@/postgres?host=127.0.0.1,127.0.0.1&port={ports}"
            "&target_session_attrs=read-write"
        )

    def fail_over(self) -> None:
        """To a copy that lacks what the first server committed last."""
        self.first.kill()
        self.copy.promote()

    def put_back(self, refusal: Refusal) -> None:
        """The rows that are missing, out of what is left of the first server."""
        self.first.start()
        rows = self.first.execute(
            "SELECT * FROM out WHERE _pos > %s AND _pos <= %s",
            refusal.there,
            refusal.acknowledged,
        )
        self.first.stop()
        marks = ", ".join(["%s"] * len(rows[0]))
        with psycopg.connect(self.copy.url) as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO out VALUES ({marks})", rows)


def run(progress: Progress, *, put_back: bool) -> dict[str, Any]:
    """Both positions, how many rows were lost, and what is wrong with the table in the end."""
    with _system(progress) as (pair, system):
        _wait_for_rows(pair.first, 100)
        progress("The copy is cut off, then the server killed and the copy promoted …")
        pair.copy.cut_off()
        time.sleep(LAG_S)
        pair.fail_over()
        refusal = _refusal(system)
        there = pair.copy.execute(READ)
        if put_back:
            pair.put_back(refusal)
        progress(refusal.statement)
        begun = time.monotonic()
        system.execute(refusal.statement)
        _wait_for_rows(pair.copy, refusal.acknowledged + 100)
        seconds = time.monotonic() - begun
        rows = pair.copy.execute(READ)
    lost = refusal.acknowledged - refusal.there
    given_up = range(refusal.there + 1, refusal.acknowledged + 1)
    expected = [row for row in _expected(rows[-1][0]) if put_back or row[0] not in given_up]
    return {
        "there": refusal.there,
        "acknowledged": refusal.acknowledged,
        "lost": lost,
        "put_back": put_back,
        "goes_on_s": round(seconds, 1),
        "told_rightly": [row[0] for row in there] == list(range(1, refusal.there + 1)),
        "whole": rows == expected,
    }


def both(progress: Progress, keep: Keep) -> dict[str, Any]:
    """A row of each way to go on."""
    rows = []
    for put_back in (False, True):
        rows.append(run(progress, put_back=put_back))
        keep(rows[-1])
    return {"rows": rows}


@contextmanager
def _system(progress: Progress) -> Iterator[tuple[Pair, Installed]]:
    """One that gives results."""
    with ExitStack() as stack:
        progress("Starting two servers and the system …")
        pair = Pair(stack)
        system = Installed('[site.here]\nmaster = "local[1]"\n')
        stack.callback(system.close)
        system.up()
        system.wait_until_up()
        system.execute(SCRIPT.format(url=pair.url))
        yield pair, system


def _refusal(system: Installed) -> Refusal:
    found: list[str] = []

    def refused(status: Status) -> bool:
        state = status.states["q"]
        found[:] = [state.reason]
        return _REFUSED.search(state.reason) is not None

    system.wait(refused, "the query is refused, with both positions and what to do")
    match = _REFUSED.search(found[0])
    assert match
    there, acknowledged = (int(text.replace(",", "")) for text in match.group(1, 2))
    if (there + 1, acknowledged) != tuple(map(int, match.group(4, 5))):
        raise TaskError(f"the statement names other positions: {found[0]}")
    return Refusal(there, acknowledged, match[3])


def _wait_for_rows(server: Postgres, position: int) -> None:
    """Up to this position."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if server.execute("SELECT to_regclass('out')") != [(None,)]:
            ((last,),) = server.execute("SELECT coalesce(max(_pos), 0) FROM out")
            if last >= position:
                return
        time.sleep(0.05)
    raise TaskError(f"the table does not get to position {position}")


def _expected(last: int) -> list[Row]:
    values = (n for n in range(3 * last) if n % 3)
    return [(at, n, 2 * n) for at, n in zip(range(1, last + 1), values, strict=False)]


def check(result: dict[str, Any]) -> None:
    """Raises TaskError unless the query was refused rightly and went on as it was told to."""
    if not result["lost"] or not result["told_rightly"]:
        raise TaskError("what was refused is not what the server lacks")
    if not result["whole"]:
        raise TaskError("the table is not what it should be")
