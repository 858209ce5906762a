"""One real site with much to do: three deadlines at 90 % load, and three times too much input."""

from __future__ import annotations

import time
from typing import Any

from anabranch.link.reports import SourceReport, TaskReport
from bench.deadline.real import Nodes, work
from bench.systems.system import Progress

UNIT_S = 0.005
"""What a unit of work takes."""
TICK_S = 0.1
QUERIES = {"fast": (2, 1, 1), "medium": (5, 5, 6), "slow": (10, 40, 40)}
"""Query → units of a tuple, how many ticks lie between its tuples, how many come then: 10, 30 and
50 % of a site."""
DEADLINES_MS = {"fast": 100, "medium": 1000, "slow": 10_000}
WARM_TICKS = 80
"""Two bursts, after which costs are known and code is compiled."""

SHED_MS = 500
"""The deadline of what is shed from."""
LIMIT = 60
"""Tuples a second that may pass, 10 ms each: with another query, 70 % of a site. Three times as
many come."""
OVERLOAD = 3
WARM_S = 10.0


def three_queries(nodes: Nodes, site: str, size: int, seconds: float) -> dict[str, float]:
    """`late` as a share of all results, and what part of its time the site worked (`load`)."""
    for name, (units, _, _) in QUERIES.items():
        cost = round(units * UNIT_S * 1e6)
        nodes.execute(
            f"CREATE STREAM {name}_in (id BIGINT) AT {site};"
            f"CREATE QUERY {name} AS SELECT {work(size, units)} AS w FROM {name}_in"
            f" DEADLINE {DEADLINES_MS[name]}ms COST {cost}us PER TUPLE AT {site};"
        )
    brought = dict.fromkeys(QUERIES, 0)
    before: dict[str, TaskReport] = {}
    started = time.monotonic()
    ticks = WARM_TICKS + round(seconds / TICK_S)
    for tick in range(ticks):
        if tick == WARM_TICKS:
            before = nodes.tasks(site)
        time.sleep(max(0.0, started + tick * TICK_S - time.monotonic()))
        for name, (_, every, count) in QUERIES.items():
            if tick % every == 0:
                nodes.push(site, f"{name}_in", count)
                brought[name] += count
    after = nodes.wait_until_taken([site], brought)
    nodes.drop([*QUERIES], [f"{name}_in" for name in QUERIES])
    span = time.monotonic() - started - WARM_TICKS * TICK_S
    spent = sum(_spent_s(after[name], before[name]) for name in QUERIES)
    return _late(after, before, *QUERIES) | {"load": spent / span}


def _spent_s(after: TaskReport, before: TaskReport) -> float:
    instances, rows = after.instances - before.instances, after.rows_in - before.rows_in
    return after.fixed_ms * instances / 1e3 + after.per_tuple_us * rows / 1e6


def _late(
    after: dict[str, TaskReport], before: dict[str, TaskReport], *queries: str
) -> dict[str, float]:
    late = sum(after[name].late - before[name].late for name in queries)
    judged = sum(after[name].judged - before[name].judged for name in queries)
    return {"late": late / max(1, judged)}


def overload(nodes: Nodes, site: str, size: int, seconds: float, shed: bool) -> dict[str, Any]:
    """Warnings of cars, of which three times as many come as can be dealt with, beside another
    query. `late` are shares; `worth` is what the kept tuples are worth, in parts of what the best
    third of all would be."""
    keep = f" SHED ABOVE {LIMIT}/s KEEP BY worth" if shed else ""
    nodes.execute(
        f"CREATE STREAM other_in (id BIGINT) AT {site};"
        f"CREATE QUERY other AS SELECT {work(size, 2)} AS w FROM other_in"
        f" DEADLINE 100ms COST {round(2 * UNIT_S * 1e6)}us PER TUPLE AT {site};"
        f"CREATE STREAM cars (id BIGINT, worth DOUBLE){keep} FROM rate(tps = {LIMIT * OVERLOAD},"
        f" id = 'value', worth = '(value * 7919) % 1000') AT {site};"
        f"CREATE QUERY warned AS SELECT worth, {work(size, 2)} AS w FROM cars"
        f" DEADLINE {SHED_MS}ms{'' if shed else ' BEST EFFORT'}"
        f" COST {round(2 * UNIT_S * 1e6)}us PER TUPLE"
        f" INTO jsonl(path = 'kept-{shed}.jsonl') AT {site};"
    )
    before: dict[str, TaskReport] = {}
    counted: SourceReport | None = None
    started = time.monotonic()
    while (now := time.monotonic() - started) < WARM_S + seconds:
        if not before and now > WARM_S:
            before = nodes.tasks(site)
            counted = _source(nodes, site)
        nodes.push(site, "other_in", 1)
        time.sleep(TICK_S)
    after, came = nodes.tasks(site), _source(nodes, site)
    nodes.drop(["warned", "other"], ["cars", "other_in"])
    assert counted
    kept, lost = came.rows - counted.rows, came.shed - counted.shed
    worth = nodes.column(f"kept-{shed}.jsonl", "worth")[counted.rows : came.rows]
    best = range(1000 - 1000 * LIMIT // (LIMIT * OVERLOAD), 1000)
    return {
        "late": _late(after, before, "warned/sink")["late"],
        "other_late": _late(after, before, "other")["late"],
        "shed": lost / max(1, kept + lost),
        "worth": sum(worth) / max(1, len(worth)) / (sum(best) / len(best)),
    }


def _source(nodes: Nodes, site: str) -> SourceReport:
    return next(one for one in nodes.report(site).sources if one.stream == "cars")


def busy(progress: Progress, seconds: float) -> dict[str, Any]:
    """`edf_misses`, `fifo_misses`, `load`, and `overload` with a shedder and without."""
    sites = {"edf": {"schedule": "edf"}, "fifo": {"schedule": "fifo"}}
    with Nodes(sites, progress) as nodes:
        progress("Calibrating …")
        calibrated = nodes.calibrated("edf", batched=True)
        sizes = {site: nodes.size(site, UNIT_S, calibrated, batched=True) for site in sites}
        found = {}
        for site, size in sizes.items():
            progress(f"Three queries on one busy site, {site.upper()} …")
            found[site] = three_queries(nodes, site, size, seconds)
        progress("Three times too much input, with a shedder …")
        kept = overload(nodes, "edf", sizes["edf"], seconds, shed=True)
        progress("Three times too much input, without …")
        drowned = overload(nodes, "edf", sizes["edf"], seconds, shed=False)
    return {
        "edf_misses": found["edf"]["late"],
        "fifo_misses": found["fifo"]["late"],
        "load": found["edf"]["load"],
        "overload": {"shed": kept, "not_shed": drowned},
    }
