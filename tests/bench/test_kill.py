"""What the kill experiment makes of an output, without any site."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from anabranch.errors import TaskError
from bench.hops import kill

NONE = dict.fromkeys(kill.FAULTS, 0)


def lines(case: kill.Case = kill.SELECTION) -> list[str]:
    """What a run without failures writes."""
    return [
        json.dumps({"_pos": at, "_ts": ts, **{f"c{i}": value for i, value in enumerate(row)}})
        for at, (row, ts) in enumerate(case.expected(), 1)
    ]


@pytest.mark.parametrize("case", kill.CASES, ids=lambda case: case.name)
def test_an_output_as_it_should_be_has_no_faults(case):
    assert kill.compare(lines(case), case) == NONE


def test_a_missing_tuple_is_lost():
    rows = lines()
    assert kill.compare(rows[:7] + rows[8:], kill.SELECTION) == NONE | {"lost": 1}


def test_an_output_that_stops_early_lost_the_rest():
    rows = lines()
    assert kill.compare(rows[:-3], kill.SELECTION) == NONE | {"lost": 3}


def test_a_tuple_that_comes_twice_is_repeated():
    rows = lines()
    assert kill.compare(rows[:7] + rows[6:], kill.SELECTION) == NONE | {"repeated": 1}


def test_a_tuple_that_comes_later_is_reordered():
    rows = lines()
    rows[7], rows[8] = rows[8], rows[7]
    assert kill.compare(rows, kill.SELECTION) == NONE | {"reordered": 1}


def test_another_value_or_time_is_wrong():
    rows = [json.loads(line) for line in lines()]
    rows[7]["c1"] += 1
    rows[9]["_ts"] += 1
    found = kill.compare([json.dumps(row) for row in rows], kill.SELECTION)
    assert found == NONE | {"wrong": 2}


def test_a_tuple_beyond_the_last_is_wrong():
    rows = lines()
    extra = json.loads(rows[-1])
    extra["_pos"] += 1
    assert kill.compare([*rows, json.dumps(extra)], kill.SELECTION) == NONE | {"wrong": 1}


def test_the_references_by_hand():
    assert list(islice(kill.SELECTION.expected(), 2)) == [
        ((1, 2), kill._ts(1)),
        ((2, 4), kill._ts(2)),
    ]
    first, ts = next(kill.ROW_WINDOWS.expected())
    assert (first, ts) == ((4950, 100), kill._ts(99))
    pairs = [pair for pair, _ in islice(kill.JOIN.expected(), 28)]
    assert pairs[:2] == [(0, 0), (1, 1)]
    assert pairs[25:] == [(0, 25), (25, 0), (25, 25)]


def test_the_plan_is_the_seeds():
    planned = list(kill.plan(5, 2, 3, 1, 1, seed=3))
    kinds = [one["kind"] for one in planned]
    assert kinds == [*["kill"] * 5, *["pause"] * 2, *["jvm"] * 3, "standby first", "both"]
    assert {one["case"].name for one in planned} == {case.name for case in kill.CASES}
    assert planned == list(kill.plan(5, 2, 3, 1, 1, seed=3))
    assert planned != list(kill.plan(5, 2, 3, 1, 1, seed=4))


def test_any_fault_is_an_error():
    kill.check(NONE)
    with pytest.raises(TaskError, match="2 lost, 0 repeated"):
        kill.check(NONE | {"lost": 2})
