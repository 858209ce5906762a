"""Figure 7 on real sites: the paper's use case in waves, every operator a query of its own.

Nothing is batched, as in the paper, and EDF and FIFO run the same: only the schedule differs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from anabranch.plan.service_levels import Urgency
from bench.deadline.real import Calibration, Nodes, work
from bench.systems.system import Progress
from simulation.collision import COMBINATIONS, OPTIMISED_FOR, RESULTS, Noise, tasks
from simulation.use_case import CENTRE, OUTPUTS, SENSOR, WARNING, collision

UNIT_S = 0.001
"""What an operator costs a tuple in the paper."""
GAP_S = Noise().gap / 1e6
IN_TIME = 0.05
"""Late results up to which a scale is taken to work, in `TRIED` waves."""
TRIED = 8
WARM = 5
"""Waves at first that do not count: the JVM still compiles."""
STREAMS = ("v2v", "sensor", "centre")
Rates = dict[str, dict[str, float]]


def figure_7(
    progress: Progress, scale: float | None, v2v: tuple[int, ...], runs: int
) -> dict[str, Any]:
    """`real`: late results of outputs 1 and 2 as shares, by combination and V2V tuples; with the
    paper's times × `scale`, else the smallest that works here; and `instance_ms`, what an instance
    takes that does nothing."""
    rates: Rates = {name: {} for name in COMBINATIONS}
    sites = {
        f"{policy}{node}": {"schedule": policy, "batch": 1}
        for policy in ("edf", "fifo")
        for node in (1, 2)
    }
    with Nodes(sites, progress) as nodes:
        progress("Calibrating …")
        found = nodes.calibrated("edf1", batched=False)
        if scale:
            work_sizes = _sizes(nodes, "edf", found, scale)
        else:
            scale, work_sizes = _least_scale(nodes, found, progress)
        work_sizes |= _sizes(nodes, "fifo", found, scale)
        for name in COMBINATIONS:
            wave = Waves(nodes, name, scale, work_sizes)
            wave.deploy()
            for count in v2v:
                progress(f"{name}, {count} V2V tuples …")
                rates[name][str(count)] = wave.late(count, runs)
            wave.drop()
    return {"real": rates, "scale": scale, "instance_ms": found.small * 1e3}


def _least_scale(
    nodes: Nodes, found: Calibration, progress: Progress
) -> tuple[float, dict[str, int]]:
    """The smallest of `SCALES` at which deadline placement with EDF is in time here, as the paper's
    was on its machine, the largest if none is; with the sizes of work with which it was."""
    for scale in found.scales(UNIT_S):
        progress(f"Trying the paper's times × {scale:g} …")
        sizes = _sizes(nodes, "edf", found, scale)
        wave = Waves(nodes, COMBINATIONS[0], scale, sizes)
        wave.deploy()
        late = wave.late(OPTIMISED_FOR, TRIED)
        wave.drop()
        if late <= IN_TIME:
            break
    return scale, sizes


def _sizes(nodes: Nodes, policy: str, found: Calibration, scale: float) -> dict[str, int]:
    """Found while both nodes are at work, as they will be: they share this machine."""
    sites = [f"{policy}{node}" for node in (1, 2)]

    def size(site: str) -> int:
        return nodes.size(site, UNIT_S * scale, found, batched=False)

    with ThreadPoolExecutor(len(sites)) as pool:
        return dict(zip(sites, pool.map(size, sites), strict=True))


class Waves:
    """One of the paper's four combinations. Queries are called as the paper's operators; `sizes`
    of their work by site."""

    def __init__(
        self, nodes: Nodes, combination: str, scale: float, sizes: Mapping[str, int]
    ) -> None:
        self._nodes = nodes
        self._scale = scale
        self._work = {site: work(size) for site, size in sizes.items()}
        self._alloc, policy = combination.split(".")
        self._at = {f"node{n}": f"{policy.lower()}{n}" for n in (1, 2)}
        self._planned = tasks(f"{self._alloc}.EDF", OPTIMISED_FOR)
        self._site = {
            step.operator: self._at[task.site] for task in self._planned for step in task.steps
        }

    def deploy(self) -> None:
        """Sub-deadlines are those that the program gives for 15 V2V tuples; existing placement
        keeps for each site what deadline placement gave that site."""
        one, two = self._at.values()
        problem = collision(OPTIMISED_FOR)
        self._nodes.execute(
            f"CREATE STREAM v2v (id BIGINT) AT {one}; CREATE STREAM sensor (id BIGINT) AT {one};"
            f"CREATE STREAM centre (id BIGINT) AT {two};"
            + "".join(self._query(one.name, one.inputs[0]) for one in problem.topological)
        )
        due = self._urgencies()
        for site in self._at.values():
            here = {name: one for name, one in due.items() if self._site[name] == site}
            self._nodes.hurry(site, here)

    def _query(self, name: str, read: str) -> str:
        work = self._work[self._site[name]]
        half = f" WHERE id % 2 = 0 OR {work} < 0" if name == "O3" else ""
        output = RESULTS.get(name)
        us = round(OUTPUTS[output] * 1e6 * self._scale) if output else 0
        due = f" DEADLINE {us}us BEST EFFORT" if output else ""
        cost = f" COST {round(UNIT_S * 1e6 * self._scale)}us PER TUPLE"
        return (
            f"CREATE QUERY {name} AS SELECT id, {work} AS w FROM {read}{half}{due}{cost}"
            f" AT {self._site[name]};"
        )

    def _urgencies(self) -> dict[str, Urgency]:
        """All operators of a task are due when it is."""
        home = {step.operator: task for task in self._planned for step in task.steps}

        def summed(name: str) -> int:
            before = home[name].inputs[0]
            return home[name].deadline + (summed(before) if before in home else 0)

        return {
            name: Urgency(
                deadline_us=round(task.deadline * self._scale),
                summed_us=round(summed(name) * self._scale),
            )
            for name, task in home.items()
        }

    def drop(self) -> None:
        names = [one.name for one in collision(OPTIMISED_FOR).topological]
        self._nodes.drop(names[::-1], STREAMS)

    def late(self, v2v: int, runs: int) -> float:
        """The share of results of outputs 1 and 2 that are late, over `runs` waves."""
        before = _counts(self._found())
        for run in range(-WARM, runs):
            found = self._wave(v2v)
            if run == -1:
                before = _counts(found)
        late, judged = (
            now - then for now, then in zip(_counts(self._found()), before, strict=True)
        )
        return late / judged

    def _found(self) -> dict[str, Any]:
        return self._nodes.tasks(*self._at.values())

    def _wave(self, v2v: int) -> dict[str, Any]:
        found = self._found()
        one, two = self._at.values()
        brought = {"O1": SENSOR, "O5": CENTRE, "O21": (v2v + 1) // 2}
        wanted = {name: found[name]["rows_in"] + count for name, count in brought.items()}
        self._nodes.push(two, "centre", CENTRE)
        started = time.monotonic()
        self._nodes.push(one, "v2v", v2v)
        time.sleep(max(0.0, started + GAP_S * self._scale - time.monotonic()))
        self._nodes.push(one, "sensor", SENSOR)
        work_s = (2 * CENTRE + v2v + len(WARNING) * brought["O21"]) * UNIT_S * self._scale
        time.sleep(work_s)  # nobody looks meanwhile
        return self._nodes.wait_until_taken([one, two], wanted)


def _counts(found: dict[str, Any]) -> tuple[int, int]:
    """Late, and all."""
    pair = found["O1"], found["O21"]
    return sum(one["late"] for one in pair), sum(one["judged"] for one in pair)
