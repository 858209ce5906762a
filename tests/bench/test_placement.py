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
from bench.placement.rates import RATES


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


@pytest.mark.parametrize("kind", RATES)
def test_a_source_has_a_rate_for_each_sample(kind: str) -> None:
    rates = RATES[kind](np.random.default_rng(5), 60)
    assert rates.shape == (60,)
    assert (rates > 0).all()
    assert (np.ptp(rates) == 0) == (kind == "steady")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"LARGE": (30, 20), "LARGE_HISTORY": 3, "HISTORY": 12, "RECENT": 3, "FOLLOWING": 4}
    for name, value in {**said, "OPERATORS": 8, "VARIED": ((4, 2),)}.items():
        monkeypatch.setattr(runs, name, value)


def test_nobody_is_better_than_who_knows_the_samples_to_come(short: None) -> None:
    rng = np.random.default_rng(2)
    latency = matrices.generated(rng, 8, 40)
    for rates in RATES:
        future = runs.World("made", latency, rates).plan(rng, pockets=1)
        best = future.clairvoyant
        assert best.cost <= future.fixed * (1 + 1e-9)
        for method in ("best", "vote"):
            life = future.live(method)
            assert life.cost >= best.cost * (1 - 1e-9)
            assert future.lowest(life.pockets) >= best.cost * (1 - 1e-9)


def test_a_pocket_in_hindsight_is_where_all_sites_tried_are_dearer(short: None) -> None:
    rng = np.random.default_rng(6)
    future = runs.World("made", matrices.generated(rng, 6, 40), "bursts").plan(rng, pockets=1)
    costs = [future.lowest(np.array([site])) for site in range(6)]
    assert future.clairvoyant.cost == pytest.approx(min(costs))


def test_the_whole_experiment(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, short: None
) -> None:
    to = tmp_path_factory.mktemp("result")
    options = ["--data", str(folder), "--json", str(to / "p.json"), "--figures", str(to)]
    result = CliRunner().invoke(app, ["placement", *options, "--trials", "2"])
    assert result.exit_code == 0, result.output
    found = json.loads((to / "p.json").read_text())
    wanted = {"cost", "cost_p95", "to_vote", "to_fixed", "pocket_regret", "moves_per_sample"}
    assert all(wanted <= row.keys() for row in found["rows"])
    assert {row["data"] for row in found["rows"]} == {"static", "generated", folder.name}
    assert {(row["k"], row["i"]) for row in found["varied"]} == {(12, 3), (4, 2)}
    assert {"placement-cost.png", "placement-pockets.png", "placement.md"} <= {
        one.name for one in to.iterdir()
    }
