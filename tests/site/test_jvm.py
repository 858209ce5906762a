"""A process that depends on another, with real ones; what dies is not a JVM, but dies as one."""

from __future__ import annotations

import subprocess
import sys

from anabranch.spark.jvm import Jvm

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
DEPENDENT = f"""
import subprocess, sys, time
from anabranch.spark.jvm import Jvm
child = subprocess.Popen({SLEEP!r})
jvm = Jvm(lambda: child)
jvm.end_with_it(lambda text: print(text, flush=True))
{{then}}
time.sleep(60)
"""


def dependent(then: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", DEPENDENT.format(then=then)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_failure_is_told_from_the_end_of_the_jvm() -> None:
    child = subprocess.Popen(SLEEP)
    try:
        jvm = Jvm(lambda: child)
        assert jvm.end(ValueError("of its own")) == ""
        child.kill()
        assert jvm.end(ConnectionRefusedError()) == "killed by SIGKILL"
        assert jvm.end(ValueError("what it is does not matter now")) == "killed by SIGKILL"
    finally:
        child.kill()
        child.wait()


def test_the_exit_code_is_told() -> None:
    child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    assert Jvm(lambda: child).end(EOFError()) == "exit code 3"


def test_a_jvm_that_is_not_ours_is_not_looked_at() -> None:
    assert Jvm(lambda: None).end(ConnectionRefusedError()) == ""
    assert Jvm(lambda: None).pid is None


def test_a_process_ends_with_its_jvm_and_says_so() -> None:
    ended = dependent("child.kill()")
    assert ended.returncode == 1
    assert ended.stdout == "Spark's JVM has ended (killed by SIGKILL), and the site with it\n"


def test_a_failure_is_not_told_by_a_process_that_ends_with_its_jvm() -> None:
    """Others are to see a site that is gone, never a query that failed."""
    ended = dependent("child.kill(); jvm.end(ConnectionRefusedError()); print('told')")
    assert ended.returncode == 1
    assert "told" not in ended.stdout


def test_a_process_that_is_closing_closes_in_order() -> None:
    ended = dependent(
        "jvm.closing(); child.kill(); print(jvm.end(EOFError())); time.sleep(0.3); sys.exit(7)"
    )
    assert ended.returncode == 7
    assert ended.stdout == "killed by SIGKILL\n"
