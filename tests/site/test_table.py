"""A table as a stream of changes: versions, stamps, and the same again after a crash."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SourceAway
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import ArrowBatches, wire_schema
from anabranch.plan.catalog import TableDef
from anabranch.plan.operators import Call, Column
from anabranch.runtime.troubles import Backoff
from anabranch.site.sources.table import LEAD_S, RowChanges, TableIngest
from anabranch.stream.batch import START_WATERMARK
from tests.link.support import LOOP, eventually, follow

ROOMS = TableDef(
    name="Rooms",
    site="a",
    source=Call(name="fake"),
    columns=(Column(name="id", type="int"), Column(name="name", type="string")),
)
SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string())])
Row = tuple[Any, ...]


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.text(max_size=1)), max_size=6), max_size=6)
)
def test_changes_lead_from_each_version_to_the_next(versions: list[list[Row]]) -> None:
    changes, last = RowChanges(), 0
    there: dict[int, Row] = {}
    for version in versions:
        before = dict(there)
        came, gone = changes.to(version, last)
        for position in gone:
            del there[position]
        for row in came:
            last += 1
            there[last] = row
        assert Counter(there.values()) == Counter(version)
        staying = Counter(before.values()) & Counter(version)
        kept = Counter(row for position, row in before.items() if position in there)
        assert kept == staying  # what stays keeps its position


class FakeReader:
    """Whose content a test changes."""

    away = False

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        self._changed = threading.Event()

    def change(self, rows: list[Row]) -> None:
        self.rows = rows
        self._changed.set()

    def read(self, stopped: threading.Event) -> pa.Table:
        if self.away:
            raise SourceAway("connection refused", place="db:5432")
        columns = list(zip(*self.rows, strict=True)) or [(), ()]
        return pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        )

    def wait(self, stopped: threading.Event, timeout_s: float) -> bool:
        changed = self._changed.wait(timeout_s)
        self._changed.clear()
        return changed

    def close(self) -> None:
        self._changed.set()


def an_outlet() -> LiveOutlet:
    schema = wire_schema(SCHEMA.append(pa.field("_gone", pa.int64())))
    return LiveOutlet(
        LOOP, "Rooms", ArrowBatches(schema), limit=1 << 20, heartbeat_s=0.02, whole=True
    )


def rows_of(outlet: LiveOutlet, count: int) -> list[Row]:
    """(id, name, what went, event time) of the first `count` tuples, whoever comes late."""
    found: list[Row] = []
    outlet.attach("late", after=0)
    for batch in follow(outlet, "late", 0):
        columns = [batch.data.column(n).to_pylist() for n in ("id", "name", "_gone", "_ts")]
        found += zip(*columns, strict=True)
        if len(found) >= count:
            outlet.detach("late")
            return found
    raise AssertionError("the stream has ended")


def test_versions_are_stamped_and_kept(tmp_path: Path) -> None:
    reader, outlet, log = FakeReader([(1, "bath"), (2, "hall")]), an_outlet(), tmp_path / "log"
    table = TableIngest(ROOMS, outlet, reader, log)
    table.start()
    first = rows_of(outlet, 2)
    assert first == [(1, "bath", None, START_WATERMARK), (2, "hall", None, START_WATERMARK)]
    before = time.time_ns() // 1000
    reader.change([(2, "hall"), (3, "attic")])
    versions = rows_of(outlet, 4)
    stamp = versions[-1][3]
    assert versions[2:] == [(3, "attic", None, stamp), (None, None, 1, stamp)]
    assert before - 1_000_000 < stamp < before + int(LEAD_S * 3e6)
    table.close()
    assert table.state == "stopped"

    # Killed and started again: the same versions, then what has changed meanwhile.
    again_outlet = an_outlet()
    again = TableIngest(ROOMS, again_outlet, FakeReader([(3, "attic"), (4, "cellar")]), log)
    again.start()
    found = rows_of(again_outlet, 6)
    assert found[:4] == versions
    assert [row[:3] for row in found[4:]] == [(4, "cellar", None), (None, None, 2)]
    assert found[4][3] > stamp
    again.close()


def test_a_table_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the start, after a restart, and when it goes away later. It promises nothing meanwhile,
    so nobody takes an old version for the present one."""
    monkeypatch.setattr("anabranch.site.sources.table.AWAY", Backoff(0.02, 0.05))
    reader, outlet = FakeReader([(1, "bath")]), an_outlet()
    reader.away = True
    table = TableIngest(ROOMS, outlet, reader, None)
    table.start()
    eventually(lambda: "connection refused" in table.report().problem)
    assert (table.state, outlet.watermark) == ("running", START_WATERMARK)
    reader.away = False
    assert rows_of(outlet, 1) == [(1, "bath", None, START_WATERMARK)]
    reader.away = True
    reader.change([(1, "bath"), (2, "hall")])
    eventually(lambda: "connection refused" in table.report().problem)
    promised = outlet.watermark
    time.sleep(0.2)
    assert outlet.watermark == promised
    reader.away = False
    assert rows_of(outlet, 2)[1][:3] == (2, "hall", None)
    eventually(lambda: table.report().problem == "" and outlet.watermark > promised)
    table.close()
    assert (table.state, table.error) == ("stopped", None)


def test_a_half_written_version_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    table = TableIngest(ROOMS, outlet := an_outlet(), FakeReader([(1, "bath")]), log)
    table.start()
    rows_of(outlet, 1)
    table.close()
    whole = log.read_bytes()
    log.write_bytes(whole + whole[: len(whole) // 2])
    again = TableIngest(ROOMS, outlet := an_outlet(), FakeReader([(1, "bath")]), log)
    again.start()
    assert [row[:3] for row in rows_of(outlet, 1)] == [(1, "bath", None)]
    again.close()
    assert outlet.last == 1
    assert log.read_bytes() == whole
