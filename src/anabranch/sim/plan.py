"""What is simulated, drawn from the seed: sources, tasks, sites, and how fast things go."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from anabranch.sim.operators import CountRows, CountTime, Join, Kind, Select
from anabranch.sim.rows import Row

UNLIMITED = 2**62
BATCHES = (1, 3, 10, UNLIMITED)


@dataclass(frozen=True)
class SourceSpec:
    """A replayable source: tuple i is there from `due[i]` on, `watermarks[i]` holds behind it."""

    name: str
    site: str
    rows: tuple[Row, ...]
    due: tuple[int, ...]
    watermarks: tuple[int, ...]


@dataclass(frozen=True)
class TaskSpec:
    """Its output stream is called as itself. Without a kind it is a sink, which never moves."""

    name: str
    inputs: tuple[str, ...]
    kind: Kind | None = None
    batch: int = 1

    def consumer(self, index: int) -> str:
        """What the producer of an input knows it as."""
        earlier = self.inputs[:index].count(self.inputs[index])
        return f"{self.name}#{earlier + 1}" if earlier else self.name


@dataclass(frozen=True)
class Pace:
    """Milliseconds. The proportions are those of real clusters; what sites wait for in vain is
    shorter, so that a run need not idle."""

    delay: tuple[int, int]
    ack: int
    work: int
    patience: int = 400
    heartbeat: int = 100
    missed: int = 3
    silence: int = 500
    call: int = 600
    slow_call: int = 1000
    repeat: int = 800
    grace: int = 800
    retry: tuple[int, int] = (25, 400)


@dataclass(frozen=True)
class Plan:
    sources: tuple[SourceSpec, ...]
    tasks: tuple[TaskSpec, ...]
    """In the order in which they feed each other."""
    sites: tuple[str, ...]
    placed: dict[str, str] = field(hash=False)
    """Task → the site where it begins."""
    pace: Pace
    stream_ms: int

    @property
    def sinks(self) -> tuple[TaskSpec, ...]:
        return tuple(task for task in self.tasks if task.kind is None)

    @property
    def pinned(self) -> set[str]:
        """Sites without which the plan cannot go on: they must come back."""
        return {one.site for one in self.sources} | {self.placed[one.name] for one in self.sinks}

    def task(self, name: str) -> TaskSpec:
        return next(task for task in self.tasks if task.name == name)

    def readers(self, stream: str) -> list[tuple[TaskSpec, int]]:
        return [(task, index) for task in self.tasks
                for index, name in enumerate(task.inputs) if name == stream]  # fmt: skip


def draw(rng: Random) -> Plan:
    stream_ms = rng.choice((1200, 2000, 3000))
    names = ["s1", "s2"][: rng.randint(1, 2)]
    sources = tuple(_source(rng, name, f"at-{name}", stream_ms) for name in names)
    tasks = _tasks(rng, names)
    workers = [f"w{n + 1}" for n in range(len(tasks) + rng.randint(0, 2))]
    sites = [one.site for one in sources] + workers
    placed = {task.name: rng.choice(workers) for task in tasks}
    ends = [task.name for task in tasks if not any(task.name in one.inputs for one in tasks)]
    if rng.random() < 0.25:
        ends.append(rng.choice([task.name for task in tasks]))
    sinks = [TaskSpec(f"k{n + 1}", (name,)) for n, name in enumerate(ends)]
    for sink in sinks:
        if rng.random() < 0.3:
            placed[sink.name] = rng.choice(workers)
        else:
            placed[sink.name] = f"at-{sink.name}"
            sites.append(placed[sink.name])
    pace = Pace(
        delay=rng.choice(((1, 3), (1, 20), (5, 60))),
        ack=rng.choice((30, 100, 250)),
        work=rng.choice((2, 20)),
    )
    return Plan(sources, (*tasks, *sinks), tuple(sites), placed, pace, stream_ms)


def _source(rng: Random, name: str, site: str, stream_ms: int) -> SourceSpec:
    """Event times are milliseconds, somewhat out of order; tuples come in clumps."""
    count, late = rng.randint(40, 120), rng.choice((0, 30, 80))
    times, watermarks, due = [], [], []
    newest, at = 0, 0
    for number in range(count):
        base = number * stream_ms // count
        ts = max(base - (rng.randint(0, late) if late else 0), newest - late, 0)
        newest = max(newest, ts)
        if rng.random() < 0.3:
            at = max(at, base + rng.randint(0, 60))
        times.append((ts, rng.randint(1, 1000)))
        watermarks.append(newest - late)
        due.append(at)
    return SourceSpec(name, site, tuple(times), tuple(due), tuple(watermarks))


def _tasks(rng: Random, sources: list[str]) -> list[TaskSpec]:
    """A tree: streams that nobody reads yet are joined or taken one at a time."""
    loose, tasks = list(sources), []
    for number in range(rng.randint(max(1, len(sources) - 1), 3)):
        name = f"t{number + 1}"
        joins = len(loose) > 1 and (number == 2 or rng.random() < 0.6)
        inputs = tuple(loose[:2]) if joins else (rng.choice(loose),)
        if not joins and rng.random() < 0.1 and inputs[0] in sources:
            inputs *= 2  # a self-join
        kind = _kind(rng, len(inputs))
        tasks.append(TaskSpec(name, inputs, kind, rng.choice(BATCHES)))
        loose = [one for one in loose if one not in inputs] + [name]
    unread = [name for name in sources if not any(name in task.inputs for task in tasks)]
    if unread:
        both = (unread[0], tasks[-1].name)
        tasks.append(TaskSpec("t9", both, _kind(rng, 2), rng.choice(BATCHES)))
    return tasks


def _kind(rng: Random, inputs: int) -> Kind:
    if inputs == 2:
        return Join((rng.choice((20, 60, 150)), rng.choice((20, 60, 150))), rng.choice((2, 3)))
    slide = rng.choice((1, 2, 5))
    spell = rng.choice((50, 100))
    return rng.choice((
        Select(rng.choice((2, 3, 7))),
        CountRows(slide * rng.choice((1, 2, 3)), slide),
        CountTime(spell * rng.choice((1, 2, 4)), spell),
    ))  # fmt: skip
