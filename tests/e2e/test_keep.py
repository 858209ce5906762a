"""What is kept of streams and queries, and read by queries that come later."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from anabranch.errors import AnabranchError
from bench.systems.system import System, read_jsonl
from tests.e2e.commands import all_gone, anabranch, family, start, wait_until
from tests.e2e.test_standby import take_over

ROWS, TPS, START_US = 20_000, 8_000, 1_800_000_000_000_000
STREAM = """
CREATE STREAM ticks (value BIGINT, k INT)
  FROM rate(tps = {tps}, rows = {rows}, start = {start}, k = 'value % 7') {keep} AT room1;
"""


def stream(keep: str, tps: int = TPS, rows: int = ROWS) -> str:
    return STREAM.format(tps=tps, rows=rows, start=START_US, keep=keep)


def read_whole(system: System, *streams: str) -> None:
    """Streams that no query reads."""
    system.execute("".join(streams))

    def ended() -> bool:
        sources = [one for site in system.coordinator.status().sites for one in site.sources]
        return len(sources) == len(streams) and all(one.state == "ended" for one in sources)

    wait_until(ended, "the streams end")


def values(path: Path) -> list[int]:
    """Those of a result, whose positions are dense."""
    rows = read_jsonl(path)
    assert [row["_pos"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["value"] for row in rows]


def sums(rows: range, width: int = TPS // 4) -> list[tuple[int, int]]:
    """Count and sum of each window of a quarter of a second."""
    return [
        (len(part), sum(part))
        for first in range(rows.start, rows.stop, width)
        if (part := range(first, min(first + width, rows.stop)))
    ]


def test_a_query_reads_what_was_and_then_what_comes(system: System) -> None:
    system.execute(stream("KEEP 1h", tps=4_000))
    system.execute(
        "CREATE QUERY live AS SELECT value FROM ticks AT centre INTO jsonl(path = 'live.jsonl');"
    )
    live = system.folder / "live.jsonl"
    wait_until(lambda: live.exists() and len(live.read_text().splitlines()) > 6_000, "live results")
    system.run(
        "CREATE QUERY late AS SELECT value FROM ticks BEGINNING WHERE value % 3 = 0 AT centre"
        " INTO jsonl(path = 'late.jsonl');"
        "CREATE QUERY windows AS SELECT COUNT(*) AS n, SUM(value) AS s FROM ticks[250ms] BEGINNING"
        " AT room2 INTO jsonl(path = 'windows.jsonl');"
    )
    assert values(live)[-1] == ROWS - 1
    assert values(system.folder / "late.jsonl") == list(range(0, ROWS, 3))
    found = [(row["n"], row["s"]) for row in read_jsonl(system.folder / "windows.jsonl")]
    assert found == sums(range(ROWS), 1_000)


def test_what_has_ended_is_read_later(system: System) -> None:
    system.run(
        stream("KEEP 1h 1GB")
        + "CREATE QUERY odd AS SELECT value, k FROM ticks WHERE value % 2 = 1 KEEP 1d AT centre;"
    )
    since = START_US + 1_500_000
    system.run(
        "CREATE QUERY again AS SELECT value FROM odd BEGINNING WHERE k = 3 AT room2"
        " INTO jsonl(path = 'again.jsonl');"
        "CREATE QUERY part AS SELECT value FROM ticks SINCE '2027-01-15 08:00:01.5' AT room2"
        " INTO jsonl(path = 'part.jsonl');"
        "CREATE QUERY recent AS SELECT value FROM ticks SINCE 500ms AT room1"
        " INTO jsonl(path = 'recent.jsonl');"
    )
    odd = [n for n in range(ROWS) if n % 2 == 1 and n % 7 == 3]
    assert values(system.folder / "again.jsonl") == odd
    assert since == 1_800_000_001_500_000
    assert values(system.folder / "part.jsonl") == list(range(TPS * 3 // 2, ROWS))
    assert values(system.folder / "recent.jsonl") == list(range(ROWS - 1 - TPS // 2, ROWS))


def test_joins_and_unions_read_the_past(system: System) -> None:
    read_whole(system, stream("KEEP 1h"), stream("KEEP 1h").replace("ticks", "tocks"))
    system.run(
        "CREATE QUERY pairs AS SELECT a.value AS value, b.value AS other"
        " FROM ticks[1ms] BEGINNING a, tocks[1ms] BEGINNING b"
        " WHERE a.value = b.value AND a.k = 2 AT centre INTO jsonl(path = 'pairs.jsonl');"
    )
    rows = read_jsonl(system.folder / "pairs.jsonl")
    assert [(row["value"], row["other"]) for row in rows] == [
        (n, n) for n in range(ROWS) if n % 7 == 2
    ]


@pytest.mark.parametrize("options", ["BATCH 100", "BATCH UNLIMITED"])
def test_taken_over_in_the_middle_of_the_past(system: System, options: str) -> None:
    read_whole(system, stream("KEEP 1h", rows=4 * ROWS, tps=4 * TPS))
    system.execute(
        f"CREATE QUERY moved AS SELECT COUNT(*) AS n, SUM(value) AS s FROM ticks[250ms] BEGINNING"
        f" STANDBY ON room2 {options} INTO jsonl(path = 'moved.jsonl') ON room1 AT centre;"
    )
    take_over(system, "moved")
    system.wait()
    found = [(row["n"], row["s"]) for row in read_jsonl(system.folder / "moved.jsonl")]
    assert found == sums(range(4 * ROWS), TPS)
    (system.folder / "moved.jsonl").unlink()


def test_what_is_not_kept_is_refused_with_what_is(system: System) -> None:
    system.run(stream("") + "CREATE QUERY live AS SELECT value FROM ticks AT centre;")
    with pytest.raises(AnabranchError, match="nothing of it is kept") as refused:
        system.execute("CREATE QUERY late AS SELECT value FROM ticks BEGINNING AT centre;")
    assert "KEEP 7d" in refused.value.remedy
    system.drop_all()
    read_whole(system, stream("KEEP 200kB"))
    first = "ticks+kept.00000000000000000001.log"
    wait_until(lambda: not list(system.state.rglob(first)), "the oldest has gone")
    with pytest.raises(AnabranchError, match="it is kept from '2027-01-15 08:00:0") as refused:
        system.execute("CREATE QUERY late AS SELECT value FROM ticks BEGINNING AT centre;")
    remedy = refused.value.remedy
    since = remedy.split("'")[1]
    system.run(
        f"CREATE QUERY late AS SELECT value FROM ticks SINCE '{since}' AT centre"
        " INTO jsonl(path = 'bounded.jsonl');"
    )
    found = values(system.folder / "bounded.jsonl")
    assert 1_000 < len(found) < ROWS
    assert found == list(range(ROWS - len(found), ROWS))


def test_explain_says_what_is_kept_and_read(system: System) -> None:
    system.execute(stream("KEEP 1h"))
    (shown,) = system.execute("EXPLAIN SELECT value FROM ticks SINCE '2026-11-01' KEEP 2GB;")
    assert "read SINCE '2026-11-01'" in shown.text
    assert "keep: 2GB" in shown.text


def test_what_is_dropped_leaves_nothing_on_the_disk(system: System) -> None:
    system.run(
        stream("KEEP 1h")
        + "CREATE QUERY odd AS SELECT value FROM ticks WHERE value % 2 = 1 KEEP 1d AT centre;"
    )
    folder = system.state / "sites"
    assert any("+kept" in path.name for path in folder.rglob("*"))
    system.drop_all()
    left = [path for path in folder.rglob("*") if "ticks" in path.name or "odd" in path.name]
    assert left == []


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


SLOW = """
CREATE STREAM ticks (value BIGINT) FROM rate(tps = 2000) KEEP 1h AT a;
CREATE QUERY even AS SELECT value FROM ticks WHERE value % 2 = 0 KEEP 1h AT b;
"""
LATE = """
CREATE QUERY late AS SELECT value FROM even BEGINNING AT c INTO jsonl(path = 'late.jsonl');
CREATE QUERY whole AS SELECT COUNT(*) AS n FROM ticks[100 ROWS] BEGINNING AT c
  INTO jsonl(path = 'whole.jsonl');
"""


@pytest.mark.slow
def test_killed_in_the_middle_of_the_past(tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text(SLOW)
    (tmp_path / "late.sql").write_text(LATE)
    cluster = "".join(f"[site.{name}]\n" for name in "abc")
    cluster += '[[link]]\nfrom = "a"\nto = "c"\nbandwidth = "80kB/s"\n'
    cluster += '[[link]]\nfrom = "b"\nto = "c"\nbandwidth = "80kB/s"\n'
    (tmp_path / "cluster.toml").write_text(cluster)
    processes: list[psutil.Process] = []
    late = tmp_path / "late.jsonl"
    up = start(["up", "--cluster", "cluster.toml"], tmp_path)
    try:
        wait_until(lambda: "sites: " in (tmp_path / "log").read_text(), "up", 150)
        done = anabranch("sql", "-f", "script.sql", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        for _ in range(2):
            anabranch("status", cwd=tmp_path)
        done = anabranch("sql", "-f", "late.sql", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: len(lines(late)) > 500, "what was", 60, tmp_path / "log")
        processes += family(up.pid)
        up.send_signal(signal.SIGKILL)
        up.wait()
        before = len(lines(late))
        up = start(["up", "--cluster", "cluster.toml"], tmp_path)
        wait_until(lambda: len(lines(late)) > before + 5_000, "more", 150, tmp_path / "log")
        processes += family(up.pid)
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(60)
    found = lines(late)
    assert [row["_pos"] for row in found] == list(range(1, len(found) + 1))
    assert [row["value"] for row in found] == list(range(0, 2 * len(found), 2))
    counted = lines(tmp_path / "whole.jsonl")
    assert [row["_pos"] for row in counted] == list(range(1, len(counted) + 1))
    assert {row["n"] for row in counted} == {100}
    assert all_gone(processes) == []
