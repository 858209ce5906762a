"""A script's streams, queries, pockets, readers and sinks are placed as one problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions

from anabranch.cli.queries.check import PlannedSites
from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.catalog import IN_MEMORY, Catalog
from anabranch.coordinator.base.reports import Sample
from anabranch.coordinator.placement.placing import Placing
from anabranch.coordinator.scripts.replies import ScriptChanges
from anabranch.coordinator.scripts.scripts import ScriptCheck
from anabranch.language.expressions.types import SketchTypes
from anabranch.language.source import Script
from anabranch.plan.catalog import AnyDef
from anabranch.plan.spec import Program, Submission

SITES = ("attic", "centre", "room1", "room2")
SOURCE = "CREATE STREAM S (Temp DOUBLE) FROM rate(tps = 100) AT room1;"
STREAM = "CREATE STREAM alarm (message STRING);"
TOLD = "CREATE QUERY told AS SELECT message FROM alarm INTO jsonl(path = 't') ON centre;"
POCKET = """
from anabranch import Pocket


class Alarm(Pocket):
    query = "SELECT Temp FROM S WHERE Temp > 50"
    output = {output!r}
    selectivity = {selectivity}

    def row(self, row):
        yield {{"message": "fire"}}
"""


def line() -> Sample:
    """room1 – attic – room2 – centre, 10 ms from each to the next."""
    order = ("room1", "attic", "room2", "centre")
    far = {
        a: {b: 0.01 * abs(i - j) for j, b in enumerate(order) if i != j}
        for i, a in enumerate(order)
    }
    return Sample(0.0, far)


class Checked:
    def __init__(self, base: Path) -> None:
        self._base = str(base)
        around: Any = PlannedSites(list(SITES))
        self._around = around
        self._placing = Placing(around, Catalog(IN_MEMORY), ClusterConfig())
        self._placing.monitor.add(0.0, line())
        self.known: dict[str, AnyDef] = {}

    def run(self, text: str, *pockets: Submission) -> ScriptChanges:
        types = SketchTypes(dir(functions))
        checking = ScriptCheck(
            Script(text), self.known, self._around, self._base, list, self._placing, types=types
        )
        changes = checking.run(pockets)
        for name in changes.drop:
            del self.known[name]
        self.known |= {one.name: one for one in changes.add}
        return changes

    def site(self, name: str) -> str:
        return self.known[name].site  # type: ignore[union-attr]


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    return Checked(tmp_path)


def pocket(folder: Path, output: str, selectivity: float = 1.0) -> str:
    text = POCKET.format(output=output, selectivity=selectivity)
    (folder / f"a{abs(hash(text))}.py").write_text(text)
    return f"CREATE POCKET p FROM python(class = 'a{abs(hash(text))}:Alarm');"


def submitted(**said: Any) -> Submission:
    usual: dict[str, Any] = {
        "name": "p",
        "query": "SELECT Temp FROM S WHERE Temp > 50",
        "output": "alarm",
        "program": Program(code="", path="p.py", class_name="P"),
    }
    return Submission(**usual | said)


@pytest.mark.parametrize("brings", [True, False])
@pytest.mark.parametrize(("selectivity", "site"), [(0.01, "room1"), (100.0, "centre")])
def test_a_pocket_and_the_stream_that_it_fills_go_together(
    checked: Checked, tmp_path: Path, selectivity: float, site: str, *, brings: bool
) -> None:
    """P-47, P-27: to where its input is, or if it gives much, to where that is read; never to the
    first site by name."""
    statement = pocket(tmp_path, STREAM[:-1] if brings else "alarm", selectivity)
    text = SOURCE + ("" if brings else STREAM) + statement + TOLD
    checked.run(text)
    assert (checked.site("p"), checked.site("alarm")) == (site, site)


def test_two_pockets_of_a_script_are_one_problem(checked: Checked, tmp_path: Path) -> None:
    """As in figure 7: the second, which is pinned, draws the first."""
    second = (
        "CREATE STREAM more (message STRING);"
        "CREATE POCKET q FROM python(class = 'second:Alarm') AT centre;"
    )
    text = POCKET.replace("SELECT Temp FROM S WHERE Temp > 50", "SELECT message FROM alarm")
    (tmp_path / "second.py").write_text(text.format(output="more", selectivity=1))
    checked.run(SOURCE + pocket(tmp_path, STREAM[:-1], 100.0) + second)
    assert [checked.site(one) for one in ("p", "alarm", "q", "more")] == ["centre"] * 4


def test_a_stream_that_nobody_has_used_goes_to_the_pocket_that_is_submitted_later(
    checked: Checked,
) -> None:
    checked.run(SOURCE + STREAM)
    assert checked.site("alarm") == "attic"
    changes = checked.run("", submitted())
    assert changes.drop == ["alarm"]
    assert [one.name for one in changes.add] == ["p_input", "alarm", "p"]
    assert (checked.site("p"), checked.site("alarm")) == ("room1", "room1")


def test_a_stream_that_is_read_already_draws_the_pocket(checked: Checked) -> None:
    checked.run(SOURCE + STREAM + TOLD)
    assert checked.site("alarm") == "centre", "near its only reader's sink"
    assert checked.run("", submitted()).drop == []
    assert checked.site("p") == "centre"


def test_at_of_the_stream_or_of_the_pocket_is_kept(checked: Checked) -> None:
    checked.run(SOURCE + STREAM[:-1] + " AT room2;")
    checked.run("", submitted())
    assert checked.site("p") == "room2"
    checked.known = {}
    checked.run(SOURCE + STREAM, submitted(site="room2"))
    assert (checked.site("p"), checked.site("alarm")) == ("room2", "room2")


def test_queries_of_a_script_are_placed_together(checked: Checked) -> None:
    """The first alone would be at room1; the second, which reads all of it, writes elsewhere. Since
    latencies are squared, three short ways are better than a long one."""
    first = "CREATE QUERY first AS SELECT Temp, Temp + 1 AS t, Temp + 2 AS u FROM S;"
    second = "CREATE QUERY second AS SELECT Temp, t, u FROM first INTO jsonl(path = 's') ON centre;"
    checked.run(SOURCE + first)
    assert checked.site("first") == "room1"
    checked.known = {}
    checked.run(SOURCE + first + second)
    assert (checked.site("first"), checked.site("second")) == ("attic", "room2")


def test_a_guess_drives_nothing_away_and_a_cost_that_is_said_does(checked: Checked) -> None:
    flood = SOURCE.replace("100", "100000")
    checked.run(flood + "CREATE QUERY q AS SELECT Temp + 1 AS t FROM S;")
    assert checked.site("q") == "room1"
    checked.known = {}
    checked.run(flood + "CREATE QUERY q AS SELECT Temp + 1 AS t FROM S COST 1ms PER TUPLE;")
    assert checked.site("q") == "room1", "wherever it is, it is as much too much"
    checked.known = {}
    checked.run(SOURCE + "CREATE QUERY q AS SELECT Temp FROM S COST 8ms PER TUPLE;")
    assert checked.site("q") == "room1"
    checked.run("CREATE QUERY more AS SELECT Temp + 1 AS t FROM S COST 8ms PER TUPLE;")
    assert checked.site("more") == "attic", "two of them are more than a slot"
