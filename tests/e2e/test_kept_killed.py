"""A JVM that dies while a kept plan evaluates an instance, beside a query that fails halfway."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from anabranch.link.reports import TaskReport
from simulation.reports import a_task
from tests.e2e.commands import anabranch, start, wait_until
from tests.e2e.test_site_restart import jvm_of, read, site_pid, status

ROWS = 4_000
SLOW, BAD = 2_500, 3_100
"""A tuple that takes seconds, and one that divides by zero."""
SCRIPT = f"""
CREATE STREAM words (n BIGINT, w STRING) FROM file(path = 'words.jsonl', speed = 'max') AT edge;
CREATE QUERY far AS SELECT n, length(w) AS l, levenshtein(w, reverse(w)) AS d
  FROM words WHERE n % 3 > 0
  INTO jsonl(path = 'far.jsonl') AT edge;
CREATE QUERY bad AS SELECT 1000000 DIV (n - {BAD}) AS d FROM words
  INTO jsonl(path = 'bad.jsonl') AT edge;
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_jvm_killed_inside_a_kept_instance_loses_and_repeats_nothing(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text('[site.edge]\nisolation = "process"\nplans = "kept"\n')
    (tmp_path / "script.sql").write_text(SCRIPT)
    words = ["ab" * (20_000 if n == SLOW else 1 + n % 3) for n in range(1, ROWS + 1)]
    lines = [json.dumps({"n": n, "w": w}) for n, w in enumerate(words, 1)]
    (tmp_path / "words.jsonl").write_text("\n".join(lines) + "\n")
    up = start(["up", "--cluster", "cluster.toml"], tmp_path)
    try:
        wait_until(lambda: "sites: " in (tmp_path / "log").read_text(), "up", 150)
        done = anabranch("sql", "-f", "script.sql", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: evaluates_all(tmp_path), "all is taken, the slow tuple not done", 60)
        os.kill(jvm_of(site_pid(tmp_path)), signal.SIGKILL)
        expected = [(n, len(words[n - 1]), 2) for n in range(1, ROWS + 1) if n % 3]
        wait_until(lambda: len(rows(tmp_path / "far.jsonl")) >= len(expected), "all rows", 200)
        wait_until(lambda: task(tmp_path, "bad").state == "failed", "the error", 60)
        far = rows(tmp_path / "far.jsonl")
        assert [row["_pos"] for row in far] == list(range(1, len(expected) + 1))
        assert [(row["n"], row["l"], row["d"]) for row in far] == expected
        assert "division by zero" in task(tmp_path, "bad").error.message
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(60)


def evaluates_all(folder: Path) -> bool:
    """An instance of `far` has taken everything, and is not behind the slow tuple."""
    far = task(folder, "far")
    return read(folder) == ROWS and far.queue == 0 and far.position < SLOW * 2 // 3


def task(folder: Path, name: str) -> TaskReport:
    tasks = (one for one in status(folder).tasks() if one.name == name)
    return next(tasks, a_task(name, state="away"))


def rows(file: Path) -> list[dict[str, Any]]:
    """Those whose line is whole."""
    text = file.read_text() if file.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]
