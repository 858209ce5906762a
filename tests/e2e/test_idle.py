"""Sites that have nothing to do cost next to nothing."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.commands import all_gone, anabranch, family, start, wait_until

SITES = [f"s{n}" for n in range(12)]
LIMIT = 0.10


def script() -> str:
    """A stream that brings a tuple in a hundred seconds, and a query on every site over it."""
    queries = [
        f"CREATE QUERY q{n} AS SELECT n FROM {f'q{n - 1}' if n else 'ticks'} AT {site};"
        for n, site in enumerate(SITES)
    ]
    return "CREATE STREAM ticks (n BIGINT) FROM rate(tps = 0.01, n = 'value') AT s0;" + "\n".join(
        queries
    )


def cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def least_share(processes: list[psutil.Process]) -> float:
    """Of a core, over 12 s; three times if need be, since what else runs here can only add."""
    least = 1.0
    for _ in range(3):
        before, started = cpu_seconds(processes), time.monotonic()
        time.sleep(12)
        least = min(least, (cpu_seconds(processes) - before) / (time.monotonic() - started))
        if least < LIMIT:
            break
    return least


@pytest.mark.soak
def test_twelve_idle_sites_are_cheap(tmp_path: Path) -> None:
    sites = [word for site in SITES for word in ("--site", site)]
    up = start(["up", *sites], tmp_path)
    try:
        wait_until(lambda: "sites: " in (tmp_path / "log").read_text(), "up")
        (tmp_path / "script.sql").write_text(script())
        done = anabranch("sql", "-f", "script.sql", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        time.sleep(8)  # what starting has stirred up settles
        processes = family(up.pid)
        share = least_share(processes)
        megabytes = sum(process.memory_info().rss for process in processes) / 1e6
        print(f"{share:.1%} of a core, {megabytes:.0f} MB")
        assert share < LIMIT
        assert megabytes < 1500
    finally:
        anabranch("down", cwd=tmp_path)
        left = all_gone(family(up.pid) if up.poll() is None else [])
        up.wait()
    assert left == []
