"""References, verdicts and figures of the standby experiment, from made-up rows."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import TaskError
from anabranch.plan.service_levels import UNLIMITED
from anabranch.standby.cost import Load
from bench.standby import figures as standby_figures
from bench.standby import rates as standby_rates
from bench.standby import steps as standby_steps
from bench.standby import verdict as standby_verdict
from bench.standby.experiment import ALL, Clock, links, series
from bench.standby.queries import AGGREGATION, NAMES, SELECTION, Operator, check, values
from bench.standby.site import longest_gap, overhead
from bench.systems import processes

LOAD = Load(
    rate=1000,
    ack_interval_s=0.25,
    lag_s=0.1,
    window=0,
    tuple_bytes=72,
    ratio=1,
    bandwidth=math.inf,
    rtt_s=0.002,
    heartbeat_s=0.25,
    fixed_s=0.05,
    per_tuple_s=1e-5,
)


def lines(operator: Operator, count: int) -> list[str]:
    columns = [column.tolist() for column in operator.expected(count)]
    return [
        json.dumps({"_pos": at, "_ts": 0, **dict(zip(NAMES, row, strict=True))})
        for at, row in enumerate(zip(*columns, strict=True), 1)
    ]


class TestReferences:
    def test_sums_are_those_of_the_window(self):
        columns = values(200)
        for got, column in zip(AGGREGATION.expected(200), columns, strict=True):
            assert got.tolist() == [sum(column[end - 100 : end]) for end in range(100, 201, 10)]

    def test_the_tuple_has_56_bytes(self):
        assert sum(column.itemsize for column in values(3)) == 56

    @pytest.mark.parametrize("operator", [SELECTION, AGGREGATION], ids=lambda one: one.name)
    def test_a_whole_output_passes(self, operator):
        assert check(lines(operator, 300), operator, at_least=300) == len(lines(operator, 300))

    @pytest.mark.parametrize("operator", [SELECTION, AGGREGATION], ids=lambda one: one.name)
    def test_faults_are_found(self, operator):
        good = lines(operator, 300)
        with pytest.raises(TaskError, match="gaps"):
            check(good[:3] + good[4:], operator)
        with pytest.raises(TaskError, match="gaps"):
            check(good[:4] + good[3:], operator)
        with pytest.raises(TaskError, match="no output"):
            check(good, operator, at_least=400)
        bad = json.loads(good[5]) | {"y": 0.3}
        with pytest.raises(TaskError, match="1 values of y"):
            check([*good[:5], json.dumps(bad), *good[6:]], operator)

    def test_an_output_file_is_compared(self):
        good = pa.table([range(1, 11), *SELECTION.expected(10)], names=["_pos", *NAMES])
        standby_rates.check(good, 10)
        with pytest.raises(TaskError, match="_pos is wrong"):
            standby_rates.check(good.slice(1), 10)


class TestMeasures:
    def test_overhead_counts_whole_batches_between_shipments(self):
        edges = [(n, n, n) for n in (0, 300, 600, 900)]
        assert overhead(edges, (1190, 900, 900)) == 1.0

    def test_overhead_of_rare_shipments_is_over_all(self):
        assert overhead([(0, 0, 0), (300, 300, 600)], (1000, 300, 600)) == 0.3
        assert overhead([(0, 0, 0)], (1000, 0, 0)) == 0.0
        assert overhead([(5, 0, 0)], (5, 0, 0)) == 0.0

    def test_the_gap_is_the_longest_that_ends_after_the_kill(self):
        assert longest_gap([0, 3, 4, 5, 7, 7.5], since=4.5) == 2
        assert longest_gap([1, 2], since=5) == 0

    def test_the_clock_says_what_is_left(self):
        said: list[str] = []
        clock = Clock(said.append, 240)
        clock.step("first", 120)
        clock.step("second", 120)
        assert said == ["first; about 4 min to go …", "second; about 2 min to go …"]


class TestPlan:
    def test_the_papers_batch_sizes(self):
        assert len(ALL) == 27
        assert {1, 20, 500, UNLIMITED} <= set(ALL)

    @pytest.mark.parametrize("quick", [True, False])
    def test_what_is_killed_is_measured_in_health_too(self, quick):
        assert all(set(one.kills) <= set(one.batches) for one in series(quick))

    def test_busy_links_leave_what_the_load_does_not_take(self):
        found = {one.sender: one.bandwidth for one in links()}
        assert found == {"source40": pytest.approx(170_000), "source60": pytest.approx(130_000)}


class TestSteps:
    def second(self, **changes: Any) -> standby_steps.Second:
        given = {"since_step_s": 8.0, "batch": 400, "load": LOAD, "overhead": 0.0}
        return standby_steps.Second(**(given | changes))

    def test_only_seconds_that_count_count(self):
        impossible = Load(**vars_of(LOAD) | {"fixed_s": 5.0})
        seconds = [
            self.second(),
            self.second(overhead=0.9),
            self.second(overhead=0.9, since_step_s=3.0),
            self.second(overhead=None),
            self.second(load=impossible),
        ]
        assert standby_steps.share_held(seconds) == (0.5, 2)
        assert standby_steps.share_held([]) == (None, 0)

    def test_shipments_of_the_last_seconds(self):
        sent = [(float(t), 100 * t, 0 if t < 8 else 50 * (t - 7)) for t in range(11)]
        assert standby_steps.shipped(sent, 10.0, since_step_s=20.0) == 150 / 400
        assert standby_steps.shipped(sent, 10.0, since_step_s=7.0) == 100 / 200
        assert standby_steps.shipped(sent, 10.0, since_step_s=6.0) is None
        assert standby_steps.shipped(sent[:1], 0.0, since_step_s=20.0) is None

    def test_the_input_steps_and_its_output_is_checked(self, tmp_path: Path):
        heavy = standby_steps.write(tmp_path / "steps.parquet", 0.01)
        assert [heavy.count(size) for size in (4_000, 12_000)] == [70, 10]
        good = [
            json.dumps({"_pos": n + 1, "id": n, "s": hashlib.sha256(b"x" * size).hexdigest()})
            for n, size in enumerate(heavy)
        ]
        standby_steps.check(good, heavy)
        with pytest.raises(TaskError):
            standby_steps.check(good[:-1], heavy)


def vars_of(load: Load) -> dict[str, float]:
    return {name: getattr(load, name) for name in Load.__slots__}


def row(b: int, operator: str = "selection", load: int = 0, compressed: bool = False) -> Any:
    """As in the paper: overhead falls and recovery grows with b."""
    ratio = 0.5 if compressed else 1.0
    share = 1.0 if b == 1 else max(0.0, 1 - b / 350)
    slow = (3 if operator == "aggregation" else 1) * (5 if load else 1)
    killed = {
        "recovery_s": slow * (0.2 + min(b, 500) / 1000),
        "gap_s": 0.4,
        "model_recovery_s": slow * (0.2 + min(b, 500) / 1000) * 1.1,
    }
    scheme = {1: "AS", UNLIMITED: "UB"}.get(b, "SAS")
    return {
        "scheme": scheme,
        "operator": operator,
        "load": load,
        "b": b,
        "compressed": compressed,
        "overhead": ratio * share,
        "model_overhead": ratio * share + 0.02,
        "ratio": ratio,
        "zero_from": 350,
        "cpu": 0.5,
        **(killed if b in (1, 100, 500, UNLIMITED) else {}),
    }


def canned() -> dict[str, Any]:
    batches = (1, 100, 200, 400, 500, UNLIMITED)
    rows = [row(b) for b in batches] + [row(b, compressed=True) for b in batches]
    rows += [row(b, "aggregation", load) for load in (0, 40, 60) for b in batches]
    rates = {"tuples_per_s": {"1": 5e5, "100": 9e5}, "healthy_throughput_ratio": 0.9}
    return standby_verdict.result(rows, {"spark_gap_s": 8.0}, rates, {"tuner_held": 0.95})


class TestVerdict:
    def test_the_papers_shapes_are_recognised(self):
        assert set(canned()["shapes"].values()) == {True}

    def test_their_absence_too(self):
        rows = [
            one | {"overhead": 0.5, "recovery_s": 1.0 if one["b"] == UNLIMITED else 2.0}
            for one in canned()["rows"]
        ]
        assert set(standby_verdict.shapes(rows).values()) == {False}

    def test_errors_and_ratios(self):
        found = canned()
        assert found["spark_restart_ratio"] == pytest.approx(20)
        assert found["gap_s"] == {"1": 0.4, "100": 0.4, "UNLIMITED": 0.4}
        assert found["model_overhead_error"] == pytest.approx(2)
        assert found["model_recovery_error"] == pytest.approx(0.1)
        assert found["model_recovery_bias"] == pytest.approx(0.1)

    def test_throughput_goes_to_the_rows_it_was_measured_for(self):
        found = [one for one in canned()["rows"] if one["throughput"]]
        assert [(one["b"], one["throughput"]) for one in found] == [(1, 5e5), (100, 9e5)]


class TestFigures:
    def test_all_are_drawn(self, tmp_path: Path):
        written = standby_figures.draw(canned(), tmp_path / "figures")
        assert len(written) == 12
        assert all(path.stat().st_size > 0 for path in written)
        assert [path.name[:9] for path in written[:11]] == [f"figure-{n:02}" for n in range(8, 19)]

    def test_the_table_has_every_row(self):
        result = canned()
        text = standby_figures.markdown(result)
        assert text.count("\n| AS ") + text.count("\n| SAS ") + text.count("\n| UB ") == 30
        assert "| UB | selection | – | ∞ | 0% | 2% | 0.70 s | 0.77 s | 0.40 s | – | 0.50 |" in text
        assert "| Spark's over ours at b = 100 | 20.00 |" in text

    def test_little_measured_still_shows(self, tmp_path: Path):
        rates = {"tuples_per_s": {}, "healthy_throughput_ratio": 0.9}
        few = standby_verdict.result([row(200)], {"spark_gap_s": 8.0}, rates, {"tuner_held": None})
        standby_figures.draw(few, tmp_path)
        assert "| Spark's over ours at b = 100 |" in standby_figures.markdown(few)


def test_a_process_that_ends_meanwhile_is_not_counted() -> None:
    """Sites that were killed come and go below the process of the experiment."""
    with subprocess.Popen(["sleep", "60"]) as child:
        busy = processes.Busy(os.getpid())
        child.kill()
    assert busy.share() >= 0
