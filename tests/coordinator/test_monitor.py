"""Samples of the system: what is made of sites' reports, kept and exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.reports import Sample
from anabranch.coordinator.placement.monitor import KEPT, Monitor, sample_of
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


def test_the_last_samples_are_kept_over_a_restart(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog.db")
    monitor = Monitor(catalog, 5.0)
    for number in range(KEPT + 5):
        monitor.add(float(number), Sample(float(number), {"a": {"b": 0.1 * number}}))
    catalog.close()
    again = Monitor(Catalog(tmp_path / "catalog.db"), 5.0)
    assert [one.at for one in again.samples] == [float(n) for n in range(5, KEPT + 5)]
    assert again.samples[-1].latency_s == {"a": {"b": 0.1 * (KEPT + 4)}}


def test_the_network_as_far_as_it_was_measured(tmp_path: Path) -> None:
    monitor = Monitor(Catalog(tmp_path / "catalog.db"), 5.0)
    assert np.isnan(monitor.network(["a", "b"]).latency).all()
    monitor.add(0.0, Sample(0.0, {"a": {"b": 0.5}}, {"S": 3.0}))
    monitor.add(1.0, Sample(1.0, {"a": {"b": 0.7, "gone": 9.0}}, {"S": 5.0}))
    network = monitor.network(["b", "a", "new"])
    assert network.latency[:, 1, 0].tolist() == [0.5, 0.7]
    assert np.isnan(network.latency[:, :, 2]).all()
    assert monitor.rates().measured == {"S": 4.0}


def test_when_a_sample_is_due(tmp_path: Path) -> None:
    monitor = Monitor(Catalog(tmp_path / "catalog.db"), 5.0)
    monitor.add(100.0, Sample(0.0))
    assert not monitor.due(101.0)
    assert monitor.due(106.0)
