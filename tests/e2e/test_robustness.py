"""Links break, the coordinator dies, the user interrupts: nothing is lost and nothing is left."""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.commands import all_gone, anabranch, family, start, wait_until
from tests.link.support import Proxy

ROWS = 24_000
SCRIPT = """
CREATE STREAM readings (id BIGINT, temperature DOUBLE) TIMESTAMP ts
  FROM file(path = 'readings.parquet', speed = 1.5) AT a;
CREATE QUERY warm AS SELECT id, temperature FROM readings WHERE temperature > 20 AT b;
CREATE QUERY hot AS SELECT id, round(temperature, 3) AS t FROM warm WHERE temperature > 22
  INTO jsonl(path = 'hot.jsonl') AT c;
CREATE QUERY all_ AS SELECT id FROM readings INTO jsonl(path = 'all.jsonl') AT c;
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_five_broken_links_and_a_killed_coordinator_change_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    temperatures = rng.normal(21, 3, ROWS)
    table = {"id": np.arange(ROWS), "temperature": temperatures, "ts": np.arange(ROWS) * 1000}
    pq.write_table(pa.table(table), tmp_path / "readings.parquet")
    (tmp_path / "script.sql").write_text(SCRIPT)
    ports = {site: free_port() for site in "abc"}
    proxies = {site: Proxy(f"127.0.0.1:{port}") for site, port in ports.items()}
    (tmp_path / "cluster.toml").write_text(
        '[defaults]\nisolation = "process"\n'
        + "".join(
            f'[site.{site}]\nlisten = "127.0.0.1:{port}"\naddress = "{proxies[site].address}"\n'
            for site, port in ports.items()
        )
    )
    up = start(["up", "--cluster", "cluster.toml"], tmp_path)
    first_up = up
    processes: list[psutil.Process] = []
    try:
        wait_until(lambda: "sites: " in (tmp_path / "log").read_text(), "up", 150)
        processes += family(up.pid)
        done = anabranch("sql", "-f", "script.sql", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: lines(tmp_path / "all.jsonl") > 1000, "first tuples")
        up, breaks = break_things(up.pid, proxies, tmp_path)
        wait_until(lambda: lines(tmp_path / "all.jsonl") >= ROWS, "all tuples", 120)
        processes += family(up.pid)
        expected = [int(i) for i in np.flatnonzero(temperatures > 22)]
        wait_until(lambda: lines(tmp_path / "hot.jsonl") >= len(expected), "hot tuples", 60)
        time.sleep(1)
        assert read_ids(tmp_path / "all.jsonl") == list(range(ROWS))
        assert read_ids(tmp_path / "hot.jsonl") == expected
        assert breaks(tmp_path) >= 5
        assert anabranch("down", cwd=tmp_path).returncode == 0
        assert all_gone(processes) == []
    finally:
        for process in processes:
            if process.is_running():
                process.kill()
        for command in (first_up, up):
            command.wait()
        for proxy in proxies.values():
            proxy.close()


def break_things(pid: int, proxies: dict[str, Proxy], folder: Path):  # type: ignore[no-untyped-def]
    """Five breaks at random; the coordinator is killed after the second and back for the last."""
    rng = random.Random(11)
    up = None
    for number in range(5):
        time.sleep(rng.uniform(0.4, 1.0))
        proxy = proxies[rng.choice("ab")]
        if number == 3:
            proxy.stall()
        for connection in [] if number == 3 else list(proxy.connections):
            connection.cut()
        if number == 1:
            psutil.Process(pid).kill()
            psutil.Process(pid).wait()
        if number == 3:
            wait_for_flow(folder / "all.jsonl")
            up = start(["up", "--cluster", "cluster.toml"], folder, "log2")
            wait_until(lambda: "sites: " in (folder / "log2").read_text(), "up again", 90)
    return up, broken_links


def wait_for_flow(path: Path) -> None:
    """Without a coordinator, tuples go on arriving."""
    before = lines(path)
    wait_until(lambda: lines(path) > before, "flow without coordinator")


def broken_links(folder: Path) -> int:
    status = json.loads(anabranch("status", "--json", cwd=folder).stdout)
    assert status["reads"] == {"warm": ["readings"], "hot": ["warm"], "all_": ["readings"]}
    return sum(task["breaks"] for site in status["sites"] for task in site["tasks"])


def read_ids(path: Path) -> list[int]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["_pos"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["id"] for row in rows]


ENDLESS = """
CREATE STREAM ticks (n BIGINT) FROM rate(tps = 500, n = 'value') AT a;
CREATE QUERY even AS SELECT n FROM ticks WHERE n % 2 = 0 INTO jsonl(path = 'even.jsonl') AT b;
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("isolation", "signal_"), [("thread", signal.SIGINT), ("process", signal.SIGTERM)]
)
def test_an_interrupt_leaves_nothing_behind(
    tmp_path: Path, isolation: str, signal_: signal.Signals
) -> None:
    (tmp_path / "script.sql").write_text(ENDLESS)
    (tmp_path / "cluster.toml").write_text(
        f'[defaults]\nisolation = "{isolation}"\n[site.a]\n[site.b]\n'
    )
    run = start(["run", "script.sql", "--cluster", "cluster.toml"], tmp_path)
    wait_until(lambda: lines(tmp_path / "even.jsonl") > 100, "tuples")
    processes = family(run.pid)
    run.send_signal(signal_)
    assert run.wait(timeout=20) == 130
    assert all_gone(processes) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert all(json.loads(line) for line in (tmp_path / "even.jsonl").read_text().splitlines())


@pytest.mark.slow
def test_a_site_that_is_interrupted_leaves_nothing_behind(tmp_path: Path) -> None:
    up = start(["up", "--site", "a", "--http", "off"], tmp_path)
    try:
        wait_until(lambda: "sites: a" in (tmp_path / "log").read_text(), "up")
        (line,) = re.findall(r"coordinator at (\S+),", (tmp_path / "log").read_text())
        joins = ["site", "b", "--coordinator", line, "--token-file", ".anabranch/token"]
        site = start([*joins, "--state", "b"], tmp_path, "b.log")
        joined = re.compile(r"^b +\S+ +up", re.MULTILINE)
        wait_until(lambda: bool(joined.search(anabranch("status", cwd=tmp_path).stdout)), "joined")
        processes = family(site.pid)
        site.send_signal(signal.SIGINT)
        assert site.wait(timeout=20) == 130
        assert all_gone(processes) == []
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(60) == 130


@pytest.mark.slow
def test_sites_of_a_killed_run_end_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "script.sql").write_text(ENDLESS)
    (tmp_path / "cluster.toml").write_text(
        '[defaults]\nisolation = "process"\n[site.a]\n[site.b]\n'
    )
    run = start(["run", "script.sql", "--cluster", "cluster.toml"], tmp_path)
    wait_until(lambda: lines(tmp_path / "even.jsonl") > 100, "tuples")
    processes = family(run.pid)
    run.kill()
    run.wait()
    assert all_gone(processes, 20) == []
    whole = (tmp_path / "even.jsonl").read_text().rpartition("\n")[0].splitlines()
    assert [json.loads(line)["n"] for line in whole] == [2 * i for i in range(len(whole))]
