"""What is simulated, drawn from the seed: sources, tasks, sites, and how fast things go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from anabranch.config.cluster import ClusterConfig
from anabranch.config.model import PlacementSettings
from anabranch.plan.catalog import QueryDef, StreamDef
from anabranch.plan.operators import Node, Port
from anabranch.plan.service_levels import UNLIMITED, Standby
from anabranch.plan.spec import Call, Column, Where
from anabranch.plan.tasks import sink_task
from simulation.operators import CountRows, CountTime, Join, Kind, Select, Until
from simulation.rows import Row

COLUMNS = (Column(name="value", type="bigint"),)
BATCHES = (1, 3, 10, UNLIMITED)
SAMPLE_US = 500_000


@dataclass(frozen=True)
class SourceSpec:
    """A replayable source: tuple i is there from `due[i]` on, `watermarks[i]` holds behind it."""

    name: str
    site: str
    rows: tuple[Row, ...]
    due: tuple[int, ...]
    watermarks: tuple[int, ...]
    late: int = 0
    """By so much a tuple may be out of order."""
    arrival: bool = False
    """Its event times are when its tuples come."""


@dataclass(frozen=True)
class TaskPlan:
    """A query: its output stream is called as itself."""

    name: str
    inputs: tuple[str, ...]
    kind: Kind
    batch: int = 1


@dataclass(frozen=True)
class SinkPlan:
    """Where a query's results go: written by the site where it is, for good; or one that any site
    can write, and that goes where its query goes."""

    query: str
    site: str | None

    @property
    def name(self) -> str:
        return sink_task(self.query)


@dataclass(frozen=True)
class Pace:
    """Milliseconds."""

    delay: tuple[int, int]
    ack: int
    work: int
    queue_bytes: int
    memory_bytes: int = 1_000_000_000
    """What the outlets of a site keep in memory."""
    disk_bytes: int = 1_000_000_000
    patience: int = 400
    heartbeat: int = 100
    missed: int = 3


@dataclass(frozen=True)
class Plan:
    sources: tuple[SourceSpec, ...]
    tasks: tuple[TaskPlan, ...]
    """In the order in which they feed each other."""
    sinks: tuple[SinkPlan, ...]
    sites: tuple[str, ...]
    placed: dict[str, str] = field(hash=False)
    """Query → the site where it begins."""
    pace: Pace
    stream_ms: int
    unprotected: frozenset[str] = frozenset()
    """Queries without a standby: then nothing may go wrong."""
    synced: bool = False
    """Sites keep what they keep so that it outlives a loss of power."""
    replan_ms: int = 0
    """Every so often all queries are placed anew; 0: they are pinned."""

    @property
    def pinned(self) -> set[str]:
        """Sites without which the plan cannot go on: they must come back."""
        return {one.site for one in self.sources} | {one.site for one in self.sinks if one.site}

    def streams(self) -> list[StreamDef]:
        return [
            StreamDef(
                name=one.name,
                columns=COLUMNS,
                site=one.site,
                source=Call(name="sim"),
                timestamp=None if one.arrival else "at",
                lateness_us=0 if one.arrival else one.late * 1000,
            )
            for one in self.sources
        ]

    def query(self, task: TaskPlan, creation: str) -> QueryDef:
        """`creation` is what sites know of the text: `base` carries it there."""
        site = self.placed[task.name]
        ports = tuple(Port(stream=one, alias=f"i{n}") for n, one in enumerate(task.inputs))
        node = Node(name=task.name, site=site, inputs=ports, operators=(), columns=COLUMNS)
        sink = next((one for one in self.sinks if one.query == task.name), None)
        return QueryDef(
            name=task.name,
            columns=COLUMNS,
            site=site,
            written=node,
            nodes=(node,),
            sink=Call(name="jsonl" if sink.site else "kafka") if sink else None,
            sink_shared=bool(sink and not sink.site),
            sink_site=sink.site if sink else None,
            standby=None if task.name in self.unprotected else Standby(batch=task.batch),
            where=Where() if self.replan_ms else None,
            run=creation,
            base=creation,
        )

    @property
    def cluster(self) -> ClusterConfig:
        return ClusterConfig(
            ack_interval_us=self.pace.ack * 1000,
            heartbeat_interval_us=self.pace.heartbeat * 1000,
            missed_heartbeats=self.pace.missed,
            queue_bytes=self.pace.queue_bytes,
            durability="power" if self.synced else "process",
            placement=PlacementSettings(sample_us=SAMPLE_US, replan_us=self.replan_ms * 1000),
        )

    def unhurried(self, rng: Random, slower: int) -> Plan:
        """The same with sources that bring their tuples so much more slowly, so that there is time
        to move, and with some queries that have no standby."""
        sources = [replace(one, due=tuple(slower * at for at in one.due)) for one in self.sources]
        bare = frozenset(task.name for task in self.tasks if rng.random() < 0.4)
        return replace(
            self, sources=tuple(sources), stream_ms=slower * self.stream_ms, unprotected=bare
        )


def with_shelves(rng: Random, drawn: Plan) -> Plan:
    """Outlets may keep less in memory than they need, and perhaps less on the disk, too."""
    memory = rng.choice((1_000_000_000, 1_000_000, 240_000, 30_000))
    disk = rng.choice((1_000_000_000, 1_000_000_000, 10_000, 1_000))
    return replace(drawn, pace=replace(drawn.pace, memory_bytes=memory, disk_bytes=disk))


def with_disks(rng: Random, drawn: Plan) -> Plan:
    """Some sources bring no event times, and some sites outlive a loss of power."""
    sources = [replace(one, arrival=rng.random() < 0.3) for one in drawn.sources]
    return replace(drawn, sources=tuple(sources), synced=rng.random() < 0.5)


def draw(rng: Random) -> Plan:
    stream_ms = rng.choice((1200, 2000, 3000))
    names = ["s1", "s2"][: rng.randint(1, 2)]
    sources = tuple(_source(rng, name, f"at-{name}", stream_ms) for name in names)
    tasks = _tasks(rng, names, stream_ms)
    workers = [f"w{n + 1}" for n in range(len(tasks) + rng.randint(0, 2))]
    sites = [one.site for one in sources] + workers
    placed = {task.name: rng.choice(workers) for task in tasks}
    ends = [task.name for task in tasks if not any(task.name in one.inputs for one in tasks)]
    if rng.random() < 0.25:
        ends = list(dict.fromkeys([*ends, rng.choice([task.name for task in tasks])]))
    sinks = []
    for name in ends:
        drawn = rng.random()
        if drawn < 0.25:
            sinks.append(SinkPlan(name, None))
        elif drawn < 0.5:
            sinks.append(SinkPlan(name, rng.choice(workers)))
        else:
            sinks.append(SinkPlan(name, f"at-{name}"))
            sites.append(f"at-{name}")
    pace = Pace(
        delay=rng.choice(((1, 3), (1, 20), (5, 60))),
        ack=rng.choice((30, 100, 250)),
        work=rng.choice((2, 20)),
        queue_bytes=rng.choice((100_000, 600_000, 40_000_000)),
    )
    return Plan(sources, tuple(tasks), tuple(sinks), tuple(sites), placed, pace, stream_ms)


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
    return SourceSpec(name, site, tuple(times), tuple(due), tuple(watermarks), late)


def _tasks(rng: Random, sources: list[str], stream_ms: int) -> list[TaskPlan]:
    shape = rng.random()
    if shape < 0.12:
        tasks = _row(rng, ("s1",), ("t1", "t2", "t3", "t4"))
    elif shape < 0.27:
        tasks = _diamond(rng)
    else:
        tasks = _tree(rng, sources)
    if rng.random() < 0.2:
        tasks = _with_early_end(rng, tasks, stream_ms)
    unread = [name for name in sources if not any(name in task.inputs for task in tasks)]
    if unread:
        both = (unread[0], next(task.name for task in reversed(tasks) if task.name != "t8"))
        tasks.append(TaskPlan("t9", both, draw_kind(rng, 2), rng.choice(BATCHES)))
    return tasks


def _with_early_end(rng: Random, tasks: list[TaskPlan], stream_ms: int) -> list[TaskPlan]:
    """One ends before its input does, which others go on to read."""
    single = [n for n, task in enumerate(tasks) if len(task.inputs) == 1]
    if not single:
        return tasks
    number = rng.choice(single)
    chosen = tasks[number]
    ends = replace(chosen, kind=Until(rng.randint(stream_ms // 4, stream_ms)))
    beside = TaskPlan("t8", chosen.inputs, Select(7), rng.choice(BATCHES))
    return [*tasks[:number], ends, *tasks[number + 1 :], beside]


def _row(rng: Random, inputs: tuple[str, ...], names: Sequence[str]) -> list[TaskPlan]:
    """Each reads the one before. Nearly all tuples come through: windows of windows have few."""
    found = []
    for name in names:
        kind = Select(rng.choice((3, 7))) if rng.random() < 0.7 else draw_kind(rng, 1)
        found.append(TaskPlan(name, inputs, kind, rng.choice(BATCHES)))
        inputs = (name,)
    return found


def _diamond(rng: Random) -> list[TaskPlan]:
    """One stream on two ways that meet again, and perhaps a row behind them."""
    ways = [_row(rng, ("t1",), [name])[0] for name in ("t2", "t3")]
    meet = TaskPlan("t4", ("t2", "t3"), draw_kind(rng, 2), rng.choice(BATCHES))
    behind = _row(rng, ("t4",), ["t5"]) if rng.random() < 0.4 else []
    return [*_row(rng, ("s1",), ["t1"]), *ways, meet, *behind]


def _tree(rng: Random, sources: list[str]) -> list[TaskPlan]:
    """Streams that nobody reads yet are joined or taken one at a time."""
    loose, tasks = list(sources), []
    for number in range(rng.randint(max(1, len(sources) - 1), 3)):
        name = f"t{number + 1}"
        joins = len(loose) > 1 and (number == 2 or rng.random() < 0.6)
        inputs = tuple(loose[:2]) if joins else (rng.choice(loose),)
        if not joins and rng.random() < 0.1 and inputs[0] in sources:
            inputs *= 2  # a self-join
        kind = draw_kind(rng, len(inputs))
        tasks.append(TaskPlan(name, inputs, kind, rng.choice(BATCHES)))
        loose = [one for one in loose if one not in inputs] + [name]
    return tasks


def draw_kind(rng: Random, inputs: int) -> Kind:
    if inputs == 2:
        return Join((rng.choice((20, 60, 150)), rng.choice((20, 60, 150))), rng.choice((2, 3)))
    slide = rng.choice((1, 2, 5))
    spell = rng.choice((50, 100))
    return rng.choice(
        (
            Select(rng.choice((2, 3, 7))),
            CountRows(slide * rng.choice((1, 2, 3)), slide),
            CountTime(spell * rng.choice((1, 2, 4)), spell),
        )
    )
