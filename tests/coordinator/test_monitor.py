"""Samples of the system: what is made of sites' reports, kept and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.config.model import PlacementSettings
from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.reports import Sample
from anabranch.coordinator.placement.monitor import Monitor, sample_of
from anabranch.link.reports import SiteReport, TaskReport
from simulation.reports import a_site, a_source, a_task


def report(site: str, trips: dict[str, float], *tasks: TaskReport) -> SiteReport:
    sources = [a_source("S", site, rate=40.0)] if site == "a" else []
    return a_site(site, *sources, *tasks, round_trips=trips)


def task(**said: Any) -> TaskReport:
    usual = {
        "rate_in": 40.0,
        "rate_out": 10.0,
        "rows_in": 400,
        "rows_out": 100,
        "instances": 40,
        "fixed_ms": 5.0,
        "per_tuple_us": 1000.0,
    }
    return a_task("q", **usual | said)


def test_a_sample_of_reports() -> None:
    found = sample_of(7.0, [report("a", {"b": 0.2}, task()), report("b", {"a": 0.4})])
    assert found.latency_s == {"a": {"b": 0.1}, "b": {"a": 0.2}}
    assert found.rates == {"S": 40.0, "q": 10.0}
    assert found.selectivities == {"q": 0.25}
    assert found.loads["q"] == pytest.approx(40 * (0.001 + 0.005 / 10))


def test_standbys_do_not_count_and_few_rows_say_nothing() -> None:
    stands_by = task(role="standby", rate_out=99.0)
    few = task(rows_in=3, rows_out=3)
    found = sample_of(0.0, [report("a", {}, few), report("b", {}, stands_by)])
    assert found.rates["q"] == 10.0
    assert found.selectivities == {}


FEW = PlacementSettings(recent=3, period_us=10_000_000, samples=4)


def test_samples_and_periods_are_kept_over_a_restart(tmp_path: Path) -> None:
    """Three samples, and the means of four periods of ten seconds."""
    catalog = Catalog(tmp_path / "catalog.db")
    monitor = Monitor(catalog, FEW)
    for number in range(0, 75, 5):
        monitor.add(float(number), Sample(float(number), {"a": {"b": 0.1 * number}}))
    catalog.close()
    again = Monitor(Catalog(tmp_path / "catalog.db"), FEW)
    assert [one.at for one in again.samples] == [30, 40, 50, 60, 60, 65, 70]
    assert [one.at for one in again.chosen("now")] == [70]
    assert again.samples[0].latency_s["a"]["b"] == pytest.approx(0.1 * 32.5)
    assert again.samples == monitor.samples


def test_the_network_as_far_as_it_was_measured(tmp_path: Path) -> None:
    monitor = Monitor(Catalog(tmp_path / "catalog.db"), PlacementSettings())
    assert np.isnan(monitor.network(["a", "b"]).latency).all()
    monitor.add(0.0, Sample(0.0, {"a": {"b": 0.5}}, {"S": 3.0}))
    monitor.add(1.0, Sample(1.0, {"a": {"b": 0.7, "gone": 9.0}}, {"S": 5.0}))
    network = monitor.network(["b", "a", "new"])
    assert network.latency[:, 1, 0].tolist() == [0.5, 0.7]
    assert np.isnan(network.latency[:, :, 2]).all()
    assert monitor.rates().measured["S"] == pytest.approx([3.0, 5.0])


def test_a_rate_belongs_to_its_sample_and_a_stream_that_was_not_there_has_its_mean(
    tmp_path: Path,
) -> None:
    monitor = Monitor(Catalog(tmp_path / "catalog.db"), PlacementSettings())
    for at, rates in enumerate([{"S": 1.0}, {"S": 0.0, "new": 4.0}, {"S": 5.0, "silent": 0.0}]):
        monitor.add(float(at), Sample(float(at), {}, rates))
    measured = monitor.rates().measured
    assert measured.keys() == {"S", "new"}, "what never brought anything is not known"
    assert measured["S"] == pytest.approx([1, 0, 5])
    assert measured["new"] == pytest.approx([4, 4, 4])
    assert monitor.rates("now").measured["S"] == pytest.approx([5])


def test_what_runs_is_placed_by_the_newest_and_by_the_same_time_of_earlier_days(
    tmp_path: Path,
) -> None:
    """4.1: variation recurs. Of a day of hours, that which comes next is told by yesterday's."""
    hourly = PlacementSettings(recent=2, period_us=3_600_000_000, samples=30)
    monitor = Monitor(Catalog(tmp_path / "catalog.db"), hourly)
    for hour in range(24 + 8):
        busy = 100.0 if hour % 24 == 8 else 1.0
        monitor.add(0.0, Sample(3600.0 * hour + 60, {}, {"S": busy}))
    assert monitor.rates("lately").measured["S"] == pytest.approx([100, 1, 1])
    assert len(monitor.chosen("ever")) == 30 + 2


def test_capacity_is_less_by_what_stands_by_and_speeds_and_bandwidths_are_means(
    tmp_path: Path,
) -> None:
    monitor = Monitor(Catalog(tmp_path / "catalog.db"), PlacementSettings())
    for speed in (1.0, 3.0):
        reports = [a_site("a", task(role="standby"), speed=speed, bandwidth={"b": 10 * speed})]
        monitor.add(0.0, sample_of(0.0, reports))
    network = monitor.network(["a"], capacity={"a": 1.0})
    assert network.capacity["a"] == pytest.approx(1 - 40 * (0.001 + 0.005 / 10))
    assert network.speed == {"a": 2.0}
    assert network.bandwidth == {("a", "b"): 20.0}


def test_a_load_is_that_of_a_site_of_speed_one() -> None:
    found = sample_of(0.0, [a_site("a", task(), round_trips={}, speed=2.0)])
    assert found.loads["q"] == pytest.approx(2 * 40 * (0.001 + 0.005 / 10))


def test_when_a_sample_is_due(tmp_path: Path) -> None:
    monitor = Monitor(Catalog(tmp_path / "catalog.db"), PlacementSettings())
    monitor.add(100.0, Sample(0.0))
    assert not monitor.due(101.0)
    assert monitor.due(106.0)
