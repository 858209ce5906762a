"""Results as they are read, and rows as they are pushed."""

from __future__ import annotations

import gc
import time
from datetime import UTC, datetime
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

from anabranch import Cluster, Pocket, source
from anabranch.api import reader
from anabranch.api.relations import Stream
from anabranch.errors import ConfigError, SourceError, TaskError


def ticks(cluster: Cluster, rows: int, pad: int = 0) -> Stream:
    return cluster.stream(
        "ticks",
        {"n": "BIGINT", "pad": "STRING"},
        at="room1",
        source=source("rate", tps=1_000_000, rows=rows, n="value", pad=f"repeat('x', {pad})"),
    )


def test_parts_of_the_results(cluster: Cluster) -> None:
    query = ticks(cluster, 100).start("q", at="centre")
    assert [row["n"] for row in query.rows(limit=3)] == [0, 1, 2]
    for row in query:
        if row["n"] == 5:
            break
    assert query.to_arrow(limit=2)["n"].to_pylist() == [6, 7]
    (batch,) = query.batches(limit=1)
    assert batch.to_pydict()["_pos"] == [9]
    assert list(query.to_pandas()["n"]) == list(range(9, 100))
    assert query.to_arrow().schema.names == ["n", "pad", "_pos", "_ts"]


def test_a_stream_without_end_is_read_for_a_while(cluster: Cluster) -> None:
    s = cluster.stream("s", {"n": "INT"}, at="room1")
    query = s.start("q", at="centre")
    started = time.monotonic()
    assert query.to_arrow(timeout="300ms").num_rows == 0
    assert time.monotonic() - started < 5
    s.push([{"n": 1}])
    assert [row["n"] for row in query.rows(limit=1, timeout=20)] == [1]


def test_unread_results_hold_the_query_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "AHEAD_BYTES", 100_000)
    query = ticks(cluster, 300_000, pad=500).start("q", at="centre")
    time.sleep(3)
    (task,) = [task for site in cluster.status()["sites"] for task in site["tasks"]]
    assert task["state"] == "running"
    assert sum(batch.num_rows for batch in query.batches()) == 300_000


def test_unread_results_of_a_query_with_a_sink_are_let_go_of(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch import sink

    monkeypatch.setattr(reader, "SPARE_BYTES", 100_000)
    query = ticks(cluster, 100_000, pad=100).start("q", into=sink("parquet", path="out"))
    cluster.wait("60s")
    with pytest.raises(TaskError, match="results of q were not kept while nobody read them"):
        list(query.batches())


def test_an_object_that_is_gone_holds_nothing_back(cluster: Cluster) -> None:
    s = cluster.stream("s", {"n": "INT"}, at="room1")
    query = s.start("q", at="centre")
    s.push([(1,)])
    assert len(list(query.rows(limit=1))) == 1

    def kept() -> int:
        s.push([(2,)])
        time.sleep(0.1)
        (site,) = [one for one in cluster.status()["sites"] if one["site"] == "centre"]
        return int(site["kept"]["q"][0])

    del query
    gc.collect()
    deadline = time.monotonic() + 10
    while kept() and time.monotonic() < deadline:
        pass
    assert kept() == 0


def test_a_query_of_someone_else_is_followed_from_now_on(cluster: Cluster) -> None:
    s = cluster.stream("s", {"n": "INT"}, at="room1")
    first = s.start("q", at="centre")
    s.push([(1,)])
    assert [row["n"] for row in first.rows(limit=1)] == [1]
    second = cluster.query("q")
    s.push([(2,), (3,)])
    s.end()
    assert [row["n"] for row in second] == [2, 3]
    assert [row["n"] for row in first] == [2, 3]
    second.close()
    with pytest.raises(ConfigError, match="not followed"):
        list(second)


def test_a_query_that_is_dropped_by_another(cluster: Cluster) -> None:
    query = cluster.stream("s", {"n": "INT"}, at="room1").start("q")
    cluster.sql("DROP QUERY q;")
    with pytest.raises(SourceError, match="q was dropped"):
        list(query)


def test_everything_that_can_be_pushed(cluster: Cluster) -> None:
    s = cluster.stream("s", {"n": "INT", "d": "DECIMAL(5, 2)", "m": "MAP<STRING, INT>"})
    query = s.start("q")
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    s.push([{"n": 1, "d": Decimal("1.5"), "_ts": now}, {"N": 2, "m": {"a": 1}, "_ts": now}])
    s.push({"n": 3, "_ts": "2026-01-31T12:00:01Z"})
    s.push(pa.table({"n": [4], "d": [None], "m": [None], "_ts": [1_769_860_802_000_000]}))
    s.push(pd.DataFrame({"n": [5], "d": [Decimal(2)], "m": [None], "_ts": [1_769_860_803_000_000]}))
    s.push([{"n": 6, "_ts": now}])  # late
    s.end()
    rows = list(query)
    assert [row["n"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["d"] for row in rows] == [Decimal("1.50"), None, None, None, Decimal("2.00")]
    assert rows[1]["m"] == [("a", 1)]
    assert [row["_ts"] - 1_769_860_800_000_000 for row in rows] == [
        0,
        0,
        10**6,
        2 * 10**6,
        3 * 10**6,
    ]
    (stream,) = [one for site in cluster.status()["sites"] for one in site["sources"]]
    assert (stream["late"], stream["state"], stream["rows"]) == (1, "ended", 5)
    cluster.wait("20s")


def test_many_rows(cluster: Cluster) -> None:
    s = cluster.stream("s", {"n": "INT"}, at="room1")
    query = s.where("n % 2 = 0").start("q", at="centre")
    assert s.push({"n": n} for n in range(50_000)) == 50_000
    s.end()
    assert query.to_arrow()["n"].to_pylist() == list(range(0, 50_000, 2))


def test_a_window_over_pushed_rows_closes_by_the_clock(cluster: Cluster) -> None:
    s = cluster.stream("s", {"n": "INT"}, at="room1")
    counts = s["500ms"].select(n="COUNT(*)").start("counts")
    s.push([(1,), (2,)])
    assert [row["n"] for row in counts.rows(limit=1, timeout="20s")] == [2]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"n": "x"}], r"push\(rows\): column n \(int32\): 'x' does not fit"),
        ([{"m": 1}], "the stream has no column 'm'. The stream has n."),
        ([(1, 2)], "a row of 2 values. The stream has n."),
        ("abc", "'abc' is no row"),
        ([5], "5 is no row"),
        (pa.table({"m": [1]}), "the column 'n' is missing"),
        ([{"n": 1, "_ts": 1}, {"n": 2}], "1 rows have no _ts"),
    ],
)
def test_rows_that_do_not_fit(cluster: Cluster, rows: object, message: str) -> None:
    s = cluster.stream("s", {"n": "INT"})
    with pytest.raises(ConfigError, match=message):
        s.push(rows)


def test_streams_that_take_no_rows(cluster: Cluster) -> None:
    with pytest.raises(SourceError, match="ticks takes no rows from programs"):
        ticks(cluster, 1).push([(1, "")])
    s = cluster.stream("s", {"n": "INT"})
    s.push([(1,)])
    with pytest.raises(SourceError, match="rows with _ts and without are mixed"):
        s.push([{"n": 1, "_ts": 1}])
    s.end()
    with pytest.raises(SourceError, match="stream s has ended"):
        s.push([(1,)])


def test_a_pocket_defined_right_here(cluster: Cluster) -> None:
    limit = 2

    class Siren(Pocket):
        query = "SELECT n FROM s WHERE n > 0"
        output = "CREATE STREAM alarm (message STRING)"

        def row(self, row: dict[str, int]) -> dict[str, str] | None:
            return {"message": f"{row['n']}!"} if row["n"] > limit else None

    s = cluster.stream("s", {"n": "INT"}, at="room2")
    alarm = cluster.submit(Siren)
    assert repr(alarm) == "<pocket Siren at room2>"
    assert (alarm.input, alarm.output.name) == ("Siren_input", "alarm")
    loud = alarm.output.select(m="upper(message)").start("loud", at="centre")
    s.push([{"n": n} for n in (0, 1, 3, 5)])
    s.end()
    assert [row["message"] for row in alarm] == ["3!", "5!"]
    assert [row["m"] for row in loud] == ["3!", "5!"]
    cluster.wait("20s")
    loud.drop()
    alarm.drop()
    assert cluster.status()["streams"] == ["s"]


def test_a_pocket_that_fails_and_one_that_cannot_be_sent(cluster: Cluster) -> None:
    import threading

    class Bad(Pocket):
        query = "s"
        output = "CREATE STREAM alarm (message STRING)"
        lock = threading.Lock()

        def row(self, row: dict[str, int]) -> None:
            raise ValueError("no")

    s = cluster.stream("s", {"n": "INT"}, at="room2")
    with pytest.raises(ConfigError, match=r"Bad cannot be sent to a site: TypeError.*open\(\)"):
        cluster.submit(Bad)
    del Bad.lock
    bad = cluster.submit(Bad, name="worse")
    s.push([(1,)])
    with pytest.raises(TaskError, match=r"test_results.py:.*pocket worse failed: ValueError: no"):
        list(bad)
