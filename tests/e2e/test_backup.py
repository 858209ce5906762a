"""A backup is made while all runs; what is restored from it goes on where that was. So does a site
that goes on elsewhere with a copy of its folder."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from anabranch.coordinator.service.state import endpoint_in
from tests.e2e.commands import all_gone, anabranch, family, start, wait_until

SCRIPT = """
CREATE STREAM ticks (value BIGINT) FROM rate(tps = 500) KEEP 1h AT a;
CREATE STREAM tocks (value BIGINT) FROM rate(tps = 500) AT b;
CREATE QUERY sums AS SELECT SUM(value) AS s, COUNT(*) AS n FROM ticks[50 ROWS SLIDE 10 ROWS] AT b;
CREATE QUERY kept AS SELECT s FROM sums WHERE n = 50 KEEP 1h INTO jsonl(path = 'kept.jsonl') AT c;
CREATE QUERY even AS SELECT value FROM tocks WHERE value % 2 = 0 INTO jsonl(path = 'even.jsonl')
  AT a;
"""
LATER = """
CREATE QUERY again AS SELECT value FROM ticks BEGINNING INTO jsonl(path = 'again.jsonl') AT c;
CREATE QUERY twice AS SELECT s FROM kept BEGINNING INTO jsonl(path = 'twice.jsonl') AT a;
"""
SITES = ["--site", "a", "--site", "b", "--site", "c", "--http", "off"]


def rows(path: Path, column: str) -> list[int]:
    """Of a result, whose positions are dense."""
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["_pos"] for row in found] == list(range(1, len(found) + 1))
    return [row[column] for row in found]


def is_up(folder: Path, log: str) -> None:
    wait_until(lambda: "sites: " in (folder / log).read_text(), "up", 150, folder / log)


def run(folder: Path, *arguments: str) -> None:
    done = anabranch(*arguments, cwd=folder)
    assert done.returncode == 0, done.stderr


def sums(count: int) -> list[int]:
    return [sum(range(10 * k, 10 * k + 50)) for k in range(count)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_is_restored_goes_on_where_the_backup_was(tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text(SCRIPT)
    (tmp_path / "later.sql").write_text(LATER)
    kept, even = tmp_path / "kept.jsonl", tmp_path / "even.jsonl"
    processes: list[psutil.Process] = []
    up = start(["up", *SITES], tmp_path, "first")
    try:
        is_up(tmp_path, "first")
        run(tmp_path, "sql", "-f", "script.sql")
        for number in range(3):
            before = len(rows(kept, "s"))
            wait_until(lambda: len(rows(kept, "s")) > before + 40, "results")  # noqa: B023
            run(tmp_path, "backup", f"copy{number}")
        again = anabranch("backup", "copy0", cwd=tmp_path)
        assert "is there already" in again.stderr
        before = len(rows(kept, "s"))
        wait_until(lambda: len(rows(kept, "s")) > before + 100, "results after the backup")
        processes += family(up.pid)
        up.send_signal(signal.SIGKILL)
        up.wait()
        shutil.rmtree(tmp_path / ".anabranch")
        run(tmp_path, "restore", "copy2")
        assert "a system has its state in" in anabranch("restore", "copy2", cwd=tmp_path).stderr
        before = len(rows(kept, "s"))
        up = start(["up", *SITES], tmp_path, "second")
        is_up(tmp_path, "second")
        run(tmp_path, "sql", "-f", "later.sql")
        log = tmp_path / "second"
        wait_until(lambda: len(rows(kept, "s")) > before + 100, "more results", 150, log)
        wait_until(lambda: len(rows(tmp_path / "twice.jsonl", "s")) > before, "twice", 60, log)
        reach = 10 * before
        wait_until(lambda: len(rows(tmp_path / "again.jsonl", "value")) > reach, "again", 60, log)
        processes += family(up.pid)
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(60)
    assert rows(kept, "s") == sums(len(rows(kept, "s")))
    assert rows(tmp_path / "twice.jsonl", "s") == sums(len(rows(tmp_path / "twice.jsonl", "s")))
    ticks = rows(tmp_path / "again.jsonl", "value")
    assert ticks == list(range(len(ticks)))
    assert rows(even, "value") == list(range(0, 2 * len(rows(even, "value")), 2))
    assert all_gone(processes) == []


MOVED = """
CREATE STREAM ticks (value BIGINT) FROM rate(tps = 500) KEEP 1h AT edge;
CREATE QUERY odd AS SELECT value FROM ticks WHERE value % 2 = 1 AT edge;
CREATE QUERY out AS SELECT value FROM odd INTO jsonl(path = 'out.jsonl') AT centre;
"""


def by_hand(folder: Path, state: str, log: str) -> subprocess.Popen[bytes]:
    """The site `edge`, as somebody starts it at its machine."""
    address, _ = endpoint_in(folder / ".anabranch")
    command = ["site", "edge", "--coordinator", address, "--state", state]
    return start([*command, "--token-file", ".anabranch/token"], folder, log)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_site_goes_on_elsewhere_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text(MOVED)
    out = tmp_path / "out.jsonl"
    processes: list[psutil.Process] = []
    up = start(["up", "--site", "centre", "--http", "off"], tmp_path, "log")
    site: subprocess.Popen[bytes] | None = None
    try:
        is_up(tmp_path, "log")
        site = by_hand(tmp_path, "here", "edge1")
        wait_until(lambda: "site edge is up" in (tmp_path / "edge1").read_text(), "edge", 150)
        run(tmp_path, "sql", "-f", "script.sql")
        wait_until(lambda: len(rows(out, "value")) > 500, "results", 60, tmp_path / "edge1")
        processes += family(site.pid)
        site.send_signal(signal.SIGKILL)
        site.wait()
        shutil.copytree(tmp_path / "here", tmp_path / "there")
        shutil.rmtree(tmp_path / "here")
        before = len(rows(out, "value"))
        site = by_hand(tmp_path, "there", "edge2")
        log = tmp_path / "log"
        wait_until(lambda: len(rows(out, "value")) > before + 2_000, "it goes on", 150, log)
        processes += [*family(site.pid), *family(up.pid)]
    finally:
        if site:
            site.send_signal(signal.SIGINT)
            site.wait(60)
        up.send_signal(signal.SIGINT)
        up.wait(60)
    found = rows(out, "value")
    assert found == list(range(1, 2 * len(found), 2))
    assert all_gone(processes) == []
