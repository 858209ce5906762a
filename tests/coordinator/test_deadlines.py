"""Deadlines of the whole system: what is tried out, and what becomes of costs that change."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.placement.deadlines import Deadlines
from anabranch.errors import AdmissionError, SiteError
from anabranch.link.message import Message
from anabranch.link.messages import Calibrate, Trial, Urgencies
from anabranch.link.reports import SiteReport
from simulation.reports import a_site, a_task
from tests.coordinator.test_admission import catalog


class FakeSites:
    """room1, which tries tasks out and reports what they were told to cost."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.told: dict[str, Any] = {}
        self.trial: Trial | None = Trial(fixed_us=500.0, per_tuple_us=10.0)
        self.report: SiteReport | None = None

    def alive(self) -> list[str]:
        return ["room1"]

    def record(self, name: str) -> Any:
        return SimpleNamespace(report=self.report)

    def peer(self, site: str) -> Any:
        return SimpleNamespace(send=self._answer)

    def _answer(self, asked: Message[Any], timeout_s: float = 0.0) -> Any:
        if isinstance(asked, Urgencies):
            self.told |= asked.tasks
            return None
        assert isinstance(asked, Calibrate)
        self.tried.append(asked.task.name)
        if self.trial is None:
            raise SiteError("it is gone")
        return self.trial

    def costs(self, fixed_ms: float) -> None:
        self.report = a_site("room1", a_task("q", instances=50, fixed_ms=fixed_ms))


@pytest.fixture
def sites() -> FakeSites:
    return FakeSites()


def deadlines(sites: Any, path: Path) -> tuple[Deadlines, Catalog]:
    known = Catalog(path / "catalog.db")
    return Deadlines(sites, known, ClusterConfig()), known


QUERY = "SELECT Temp + 1 AS t FROM Sensor1 DEADLINE 3ms AT room1"


def test_a_new_query_is_tried_out_once(sites: FakeSites, tmp_path: Path) -> None:
    whole, _ = deadlines(sites, tmp_path)
    definitions = catalog(q=QUERY)
    new = [definitions.pop("q")]
    for _ in range(2):
        admitted, decision = whole.admit(definitions, new)
    assert sites.tried == ["q"]
    assert decision.promised == {"q": 0.003}
    assert admitted[0].urgencies["q"].summed_us == 3000  # type: ignore[union-attr]


def test_what_cannot_be_tried_is_guessed(sites: FakeSites, tmp_path: Path) -> None:
    whole, _ = deadlines(sites, tmp_path)
    sites.trial = None
    definitions = catalog(q=QUERY)
    new = [definitions.pop("q")]
    with pytest.raises(AdmissionError, match="query q cannot hold DEADLINE 3ms"):
        whole.admit(definitions, new)  # a guess is 4 ms and more


def test_costs_that_drift_are_told_of_and_sub_deadlines_set_anew(
    sites: FakeSites, tmp_path: Path
) -> None:
    """A task of 1 ms and its sink of 2 ms share 30 ms; once it takes ten times as long it needs
    more of them."""
    whole, known = deadlines(sites, tmp_path)
    definitions = catalog(
        q="SELECT Temp + 1 AS t FROM Sensor1 DEADLINE 30ms INTO jsonl(path = 'x') ON room2 AT room1"
    )
    query = definitions.pop("q")
    sites.trial = Trial(1000.0, 0.0)
    admitted, _ = whole.admit(definitions, [query])
    known.change([*definitions.values(), *admitted], [])
    before = admitted[0].urgencies["q"].deadline_us  # type: ignore[union-attr]
    assert whole.outlook() == ""
    sites.costs(10.0)
    whole.renew()
    after = sites.told["q"].deadline_us
    assert after > 2 * before
    assert whole.outlook() == ""
    sites.costs(40.0)
    whole.renew()
    assert sites.told["q"].deadline_us == after
    assert "by what tasks cost now query q cannot hold DEADLINE 30ms" in whole.outlook()
