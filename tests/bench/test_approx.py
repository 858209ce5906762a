"""The approx experiment: what it reads, what it writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner

from anabranch.approx.assign import METHODS
from bench.approx import data, experiment, figures, sites
from bench.commands.measurements import app

COLUMNS = {
    "data",
    "workers",
    "epsilon",
    "method",
    "model",
    "estimable",
    "error",
    "worst_key_error",
    "assign_s",
}
REAL = Path(os.environ.get("ANABRANCH_DATA", "../shared/data")) / "intel_lab" / "temperature.txt"


def write(path: Path, first: list[float]) -> Path:
    rows = [f"{time},{20 + n % 3},{n}" for n, time in enumerate(first)]
    path.write_text("\n".join(["time,a,b", *rows]) + "\n")
    return path


def test_a_time_is_not_a_key(tmp_path: Path) -> None:
    found = data.read(write(tmp_path / "a.csv", [10, 11, 12.5, 14]))
    assert found.tolist() == [[20, 0], [21, 1], [22, 2], [20, 3]]
    falls = data.read(write(tmp_path / "b.csv", [10, 11, 11, 14]))
    assert falls[:, 0].tolist() == [10, 11, 11, 14]


def readings(path: Path) -> Path:
    """With a column of times."""
    values = data.regime("stable", 1, windows=200, keys=8)
    rows = [",".join(map(repr, [n * 30, *row])) for n, row in enumerate(values.tolist())]
    path.write_text("\n".join(["time," + ",".join("abcdefgh"), *rows]) + "\n")
    return path


def test_figures_of_readings_by_workers_and_by_epsilon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: experiment.LADDER[name] for name in ("gaussian", experiment.FULL)}
    monkeypatch.setattr(experiment, "LADDER", few)
    file = readings(tmp_path / "lab.csv")
    rows = experiment.run_file(
        file,
        lambda line: None,
        width=3,
        slide=1,
        part=0.6,
        workers=(4, 2),
        epsilons=(0.5, 1.0),
        name=data.name_of(file),
    )
    assert all(row.keys() >= COLUMNS for row in rows)
    drawn = figures.draw(rows, tmp_path / "figures")
    assert [one.name for one in drawn] == [f"approx-lab-{name}.png" for name in figures.FIGURES]
    assert all(one.stat().st_size > 1000 for one in drawn)
    alone = [row for row in rows if row["workers"] == 4]
    names = [one.name for one in figures.draw(alone, tmp_path / "few")]
    assert names == ["approx-lab-11-estimable-by-epsilon.png", "approx-lab-13-error-by-epsilon.png"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the parts that take long. The kills are not made, but their database is."""

    def measure(progress: object, url: str, kills: int, seed: int) -> dict[str, object]:
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        return {"kills": kills, "recovery_ratio": 7.5}

    monkeypatch.setattr(sites, "measure", measure)
    monkeypatch.setattr(experiment, "METHODS", {"swaps": METHODS["swaps"]})
    monkeypatch.setattr(experiment, "WORKERS", (10, 60))
    monkeypatch.setattr(experiment, "EPSILONS", (0.65,))
    monkeypatch.setattr(experiment, "run_regimes", lambda progress: [])
    monkeypatch.setattr(experiment, "run_speed", lambda progress: {})


def run(file: Path, *options: str) -> dict[str, object]:
    done = CliRunner().invoke(app, ["approx", "--json", str(file), *options])
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(file.read_text())
    return found


def test_workers_are_killed_without_being_asked_for(short: None, tmp_path: Path) -> None:
    result = run(tmp_path / "out.json", "--kills", "3")
    assert result["recovery_ratio"] == 7.5
    assert result["sites"] == {"kills": 3, "recovery_ratio": 7.5}
    assert isinstance(result["rows"], list)
    assert all(row.keys() >= COLUMNS for row in result["rows"])


def test_real_sites_can_be_left_out(short: None, tmp_path: Path) -> None:
    assert "sites" not in run(tmp_path / "out.json", "--simulated")


@pytest.mark.slow
@pytest.mark.skipif(not REAL.exists(), reason="needs the readings of the Intel lab")
def test_the_promise_is_kept_in_the_intel_lab() -> None:
    """Means of 30 min every 10 min; 60 % learnt from; 13 workers; confidence 95 %."""
    windows = data.means(data.read(REAL), 60, 20)
    assert windows.shape[1] == 52
    full = {experiment.FULL: experiment.LADDER[experiment.FULL]}
    half, one = experiment.run_windows(
        windows, 3, lambda line: None, 0.6, (13,), (0.5, 1.0), "intel_lab", full
    )
    assert half["estimable"] >= 11
    assert half["error"] <= 0.05
    assert half["worst_key_error"] <= 0.10
    assert one["estimable"] == 13
    assert one["error"] <= 0.05
    assert np.isfinite(half["bound"])
