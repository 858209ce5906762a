"""The placement experiment on little data: what it reads, what it says."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from anabranch.errors import ConfigError
from anabranch.placement.network import NetworkSamples
from bench.commands.measurements import app
from bench.placement import matrices, runs
from bench.placement.queries import query


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(4)
    latency = matrices.generated(rng, 8, 90)
    latency[5, 1, 2] = 0
    for number, sample in enumerate(latency):
        np.savetxt(tmp_path / f"data_{number}", sample)
    return tmp_path


def test_matrices_come_in_the_order_of_their_numbers(folder: Path) -> None:
    found = matrices.read(folder)
    assert found.shape == (90, 8, 8)
    assert np.isnan(found[5, 1, 2])
    assert found[10] == pytest.approx(np.loadtxt(folder / "data_10"))


def test_matrices_in_an_archive(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("packed")
    with tarfile.open(other / "all.tar.gz", "w:gz") as archive:
        archive.add(folder, "some")
    assert matrices.read(other) == pytest.approx(matrices.read(folder), nan_ok=True)


def test_bad_matrices_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such folder"):
        matrices.read(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"no files"):
        matrices.read(tmp_path)
    (tmp_path / "a").write_text("1 2\n")
    with pytest.raises(ConfigError, match=r"a: this matrix is 1×2"):
        matrices.read(tmp_path)


@pytest.mark.parametrize("remerging", [False, True])
def test_random_plans_are_whole(remerging: bool) -> None:
    rng = np.random.default_rng(1)
    network = NetworkSamples.unmeasured([f"s{i}" for i in range(5)])
    for _ in range(20):
        problem = query(rng, network, 12, remerging=remerging)
        read = {link.producer for link in problem.links}
        for vertex in problem.vertices:
            assert vertex.kind == "sink" or vertex.name in read
        links, vertices = len(problem.links), len(problem.vertices)
        assert remerging or links == vertices - 1, "a tree"


def test_the_whole_experiment(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path_factory.mktemp("result")
    monkeypatch.setattr(runs, "LARGE", (30, 20))
    monkeypatch.setattr(runs, "STEPS", 5)
    options = ["--data", str(folder), "--json", str(to / "p.json"), "--figures", str(to)]
    result = CliRunner().invoke(app, ["placement", *options, "--trials", "2"])
    assert result.exit_code == 0, result.output
    found = json.loads((to / "p.json").read_text())
    wanted = {
        "data",
        "method",
        "sites",
        "operators",
        "cost_ratio",
        "regret_median",
        "regret_p95",
        "moves_per_sample",
        "saved",
        "seconds",
    }
    assert all(wanted <= row.keys() for row in found["rows"])
    best = [row for row in found["rows"] if row["method"] == "best" and row["graph"] == "tree"]
    assert all(row["cost_ratio"] == pytest.approx(1) for row in best)
    assert {"placement-cost.png", "placement.md"} <= {one.name for one in to.iterdir()}
