"""What must be true once everything has come to rest: sinks hold what they should, sites run what
the catalog says and nothing else, nobody keeps tuples for somebody who is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.plan.catalog import QueryDef, StreamDef
from anabranch.plan.definitions import tasks
from anabranch.plan.tasks import TaskSpec
from simulation.reference import first_difference
from simulation.site import SimSite

if TYPE_CHECKING:
    from simulation.world import World


def truths(world: World) -> Iterator[str]:
    """What is not true yet, cheap things first."""
    yield from _sinks(world)
    specs = {
        task.name: task
        for task in tasks(world.catalog.definitions().values(), world.catalog.definitions())
    }
    here = [site for site in world.sites.values() if site.process.alive]
    yield from _runs(specs, here)
    yield from _sources(world, here)
    yield from _readers(specs, here)
    yield from _disks(world, here)


def _sinks(world: World) -> Iterator[str]:
    known = world.catalog.definitions()
    for sink in world.plan.sinks:
        query = known.get(sink.query)
        if isinstance(query, QueryDef):
            wanted = world.ledger.sink(sink.name, query.run)
            rows = world.written(sink)
            if wanted is None:
                yield f"sink {sink.name} has not begun, or its sources bring more"
            elif len(rows) < len(wanted):
                yield f"sink {sink.name} has {len(rows)} of {len(wanted)} tuples"
            elif difference := first_difference(rows, wanted):
                yield f"sink {sink.name}: {difference}"


def past(world: World) -> Iterator[str]:
    """What was put out was right, as far as it went."""
    yield from world.ledger.differences()
    for (sink, run), rows in world.all_sinks():
        wanted = world.ledger.sink(sink, run)
        if wanted is None:
            continue
        if difference := first_difference(rows, wanted[: len(rows)]):
            yield f"sink {sink} of {run}: {difference}"


def _runs(specs: dict[str, TaskSpec], here: list[SimSite]) -> Iterator[str]:
    primaries: dict[str, list[str]] = {}
    for site in here:
        for task in list(site.tasks.values()):
            name, wanted = task.spec.name, specs.get(task.spec.name)
            if wanted is None:
                yield f"{name} runs at {site.name} ({task.role}), the catalog does not know it"
            elif wanted.born != task.spec.born:
                yield (
                    f"{name} of {task.spec.born} runs at {site.name}, the catalog has that of"
                    f" {wanted.born}"
                )
            elif task.role == "primary" and task.state in ("running", "done"):
                primaries.setdefault(name, []).append(site.name)
    for name in specs:
        where = primaries.get(name, [])
        if len(where) != 1:
            yield f"{name} runs at {', '.join(where) or 'no site'}"


def _sources(world: World, here: list[SimSite]) -> Iterator[str]:
    wanted = {
        one.name: one.site
        for one in world.catalog.definitions().values()
        if isinstance(one, StreamDef)
    }
    found = [(name, site.name) for site in here for name in site.service.deployment.sources]
    for name, where in found:
        if wanted.get(name) != where:
            yield f"stream {name} is read at {where}, the catalog says {wanted.get(name)}"
    for name, where in wanted.items():
        if (name, where) not in found:
            yield f"stream {name} is not read at {where}"


def _readers(specs: dict[str, TaskSpec], here: list[SimSite]) -> Iterator[str]:
    """At whoever produces a stream."""
    known = {
        (source.stream, spec.consumer(index))
        for spec in specs.values()
        for index, source in enumerate(spec.inputs)
    }
    for site in here:
        for name, outlet in site.service.outlets.items():
            for consumer in outlet.consumers:
                if (name, consumer) not in known:
                    yield f"{site.name} keeps tuples of {name} for {consumer}, which is gone"


def _disks(world: World, here: list[SimSite]) -> Iterator[str]:
    """What is spilled is accounted for, and nothing is left of what is not needed."""
    for site in here:
        there = sum(
            len(data) for name, data in world.disks[site.name].files.items() if ".spill." in name
        )
        if there != site.disk.used:
            yield f"{site.name} has spilled {there} bytes, and counts {site.disk.used}"
