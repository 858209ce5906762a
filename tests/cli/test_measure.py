"""Results of long runs are on disk before they end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.commands.commands import Keep, Progress, measured_long


def two_rows(progress: Progress, keep: Keep) -> dict[str, Any]:
    keep({"b": 1})
    keep({"b": 20})
    return {"rows": 2}


def breaks(progress: Progress, keep: Keep) -> dict[str, Any]:
    keep({"b": 1})
    raise KeyboardInterrupt


def test_a_whole_run_leaves_its_result_alone(tmp_path: Path) -> None:
    assert measured_long(two_rows, tmp_path / "r.json") == {"rows": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    assert json.loads((tmp_path / "r.json").read_text()) == {"rows": 2}


def test_rows_of_a_run_that_ends_early_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):  # the second begins anew
        with pytest.raises(KeyboardInterrupt):
            measured_long(breaks, tmp_path / "r.json")
    assert (tmp_path / "r.json.rows").read_text() == '{"b": 1}\n'
    assert "r.json.rows" in "".join(capsys.readouterr().err.split())


def test_without_a_file_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert measured_long(two_rows, None) == {"rows": 2}
    assert not list(tmp_path.iterdir())
