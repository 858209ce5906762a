"""The scenes that follow the fire, each played once, shorter, on sites of this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.config.cluster import SiteConfig
from anabranch.demo.apartment import cluster
from anabranch.demo.scenes import estimate, network
from anabranch.demo.scenes.deadlines import DeadlinesScene
from anabranch.demo.scenes.host import Scene, SceneHost
from anabranch.demo.scenes.network import NetworkScene
from anabranch.demo.scenes.stage import StageScene
from bench.systems.system import System


@pytest.fixture(scope="module")
def host(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SceneHost]:
    apart = cluster()
    sites = {name: SiteConfig(name=name) for name in apart.sites}
    here = apart.model_copy(update={"sites": sites})
    system = System(here, spark, tmp_path_factory.mktemp("scenes"))
    yield SceneHost(system.coordinator, system.folder, system.execute, lambda site: None, print)
    system.close()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    "scene",
    [NetworkScene(seconds=24), DeadlinesScene(seconds=3), StageScene(clicks=200_000)],
    ids=lambda scene: type(scene).__name__,
)
def test_a_scene_shows_what_it_promises(scene: Scene, host: SceneHost) -> None:
    told = scene.play(host)
    assert told.well, told.sentence
    assert "NOT" not in told.sentence
    assert host.status().streams == ()


def test_what_both_rooms_measured_together() -> None:
    """By the meaning of the join: equal values, hot together."""
    kitchen, hall = range(40, 70), range(41, 61)
    hot = [n for n in range(60) if kitchen[n % 30] + hall[n % 20] > 2 * network.ABOVE]
    assert network.expected(60) == hot != []


def test_estimates_are_judged_by_the_truth() -> None:
    truth = estimate.expected()
    (end, key), mean = next(iter(truth.items()))
    exact = (end, key, mean, False, None, None)
    near = (end, key, mean + 0.1, True, mean - 0.2, mean + 0.4)
    far = (end, key, mean + 0.6, True, mean + 0.3, mean + 0.9)
    assert estimate.judged([exact, near]).well
    assert not estimate.judged([exact, near, far]).well
    assert not estimate.judged([exact]).well
    assert not estimate.judged([(end, key, mean + 0.1, False, None, None), near]).well


def test_without_postgresql_the_estimates_are_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("anabranch.demo.database._ROOT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    told = estimate.EstimateScene().play(None)  # type: ignore[arg-type]
    assert told.well is None
    assert "apt-get install postgresql" in told.sentence
