"""Everything is killed at once, and started again: results go on where they were."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pytest

from tests.e2e.commands import all_gone, anabranch, family, start, wait_until

SCRIPT = """
CREATE STREAM ticks (value BIGINT) FROM rate(tps = 200) AT a;
CREATE QUERY sums AS SELECT SUM(value) AS s, COUNT(*) AS n FROM ticks[50 ROWS SLIDE 10 ROWS] AT b;
CREATE QUERY kept AS SELECT s, n FROM sums WHERE n = 50 INTO jsonl(path = 'kept.jsonl') AT c;
"""


def lines(folder: Path) -> list[dict[str, int]]:
    path = folder / "kept.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_a_killed_system_goes_on_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text(SCRIPT)
    sites = ["--site", "a", "--site", "b", "--site", "c"]
    processes: list[psutil.Process] = []
    up = start(["up", *sites], tmp_path)
    try:
        wait_until(lambda: "sites: " in (tmp_path / "log").read_text(), "up", 150)
        done = anabranch("sql", "-f", "script.sql", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: len(lines(tmp_path)) > 40, "first results", 60)
        processes += family(up.pid)
        up.send_signal(signal.SIGKILL)
        up.wait()
        before = len(lines(tmp_path))
        up = start(["up", *sites], tmp_path)
        log = tmp_path / "log"
        wait_until(lambda: len(lines(tmp_path)) > before + 60, "more results", 150, log)
        processes += family(up.pid)
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(60)
    found = lines(tmp_path)
    assert [row["_pos"] for row in found] == list(range(1, len(found) + 1))
    assert [row["s"] for row in found] == [
        sum(range(10 * k, 10 * k + 50)) for k in range(len(found))
    ]
    assert all_gone(processes) == []
