"""Cores for all threads of a process and of those it has begun."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from anabranch.bench.processes import cores, family, pin

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system does not pin"
)
CODE = """
import subprocess, sys, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("up", flush=True)
time.sleep(60)
"""


def threads(pid: int) -> list[set[int]]:
    return [os.sched_getaffinity(thread.id) for one in family(pid) for thread in one.threads()]


def test_all_threads_and_children_are_pinned_and_let_go() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", CODE], stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        try:
            one = cores()[-1:]
            pin(process.pid, one)
            assert len(threads(process.pid)) >= 3
            assert all(found == set(one) for found in threads(process.pid))
            pin(process.pid, cores())
            assert all(found == set(cores()) for found in threads(process.pid))
        finally:
            for member in family(process.pid):
                member.kill()


def test_of_what_has_ended_nothing_is_asked() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    pin(process.pid, cores())
    assert family(process.pid) == []
