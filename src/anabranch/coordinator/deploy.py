"""Putting definitions onto sites, and taking them off again: whole or not at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from anabranch.coordinator.sites import Sites
from anabranch.errors import AnabranchError
from anabranch.plan.catalog import QueryDef, StreamDef
from anabranch.plan.tasks import Input, TaskSpec, tasks_of

Definitions = Mapping[str, StreamDef | QueryDef]
PREPARE_S = 120.0


class Deployment:
    """Deploys `new` definitions; `known` holds these and all earlier ones by name."""

    def __init__(
        self, sites: Sites, new: Sequence[StreamDef | QueryDef], known: Definitions
    ) -> None:
        self._sites = sites
        self._known = known
        self._streams = [one for one in new if isinstance(one, StreamDef)]
        queries = [one for one in new if isinstance(one, QueryDef)]
        self._tasks = [task for query in queries for task in tasks_of(query, known[query.input])]

    def run(self) -> None:
        """Nothing is left behind on any site if this raises."""
        prepared: list[str] = []
        try:
            for site in self._sites_needed():
                prepared.append(site)  # first: it may have prepared and not been able to say so
                self._prepare(site)
            self._start_tasks(self._attach())
            self._start_sources()
        except AnabranchError:
            for site in prepared:
                drop(self._sites, site, self._names(site, self._streams), self._task_names(site))
            _let_go(self._sites, self._tasks)
            raise

    def _sites_needed(self) -> list[str]:
        streams = [stream.site for stream in self._streams]
        return list(dict.fromkeys([*streams, *(task.site for task in self._tasks)]))

    def _prepare(self, site: str) -> None:
        self._sites.peer(site).call(
            "prepare",
            timeout_s=PREPARE_S,
            streams=[one.model_dump() for one in self._streams if one.site == site],
            tasks=[one.model_dump() for one in self._tasks if one.site == site],
        )
        self._sites.peer(site).call("peers", peers=self._sites.addresses())

    def _attach(self) -> dict[str, list[int]]:
        """Task name → the position behind which each of its inputs begins."""
        return {task.name: [self._attach_input(task, i) for i in range(len(task.inputs))]
                for task in self._tasks}  # fmt: skip

    def _attach_input(self, task: TaskSpec, index: int) -> int:
        source = task.inputs[index]
        peer = self._sites.peer(source.site)
        return int(peer.call("attach", stream=source.stream, consumer=task.name))

    def _start_tasks(self, positions: dict[str, list[int]]) -> None:
        by_site: dict[str, dict[str, list[int]]] = defaultdict(dict)
        for task in self._tasks:
            by_site[task.site][task.name] = positions[task.name]
        for site, tasks in by_site.items():
            self._sites.peer(site).call("start", timeout_s=PREPARE_S, tasks=tasks)

    def _start_sources(self) -> None:
        """A stream begins when it has a consumer, so that its first tuples are not lost on none."""
        by_site: dict[str, list[str]] = defaultdict(list)
        for name in dict.fromkeys(source.stream for task in self._tasks for source in task.inputs):
            definition = self._known[name]
            if isinstance(definition, StreamDef):
                by_site[definition.site].append(name)
        for site, streams in by_site.items():
            self._sites.peer(site).call("start_sources", streams=streams)

    @staticmethod
    def _names(site: str, streams: Iterable[StreamDef]) -> list[str]:
        return [stream.name for stream in streams if stream.site == site]

    def _task_names(self, site: str) -> list[str]:
        return [task.name for task in self._tasks if task.site == site]


def undeploy(sites: Sites, definition: StreamDef | QueryDef, known: Definitions) -> None:
    """Take a definition off its site. A site that cannot be reached runs nothing of ours any more
    once it is gone; but those it read from would keep tuples for it for ever."""
    if isinstance(definition, StreamDef):
        drop(sites, definition.site, [definition.name], [])
    else:
        tasks = tasks_of(definition, known[definition.input])
        drop(sites, definition.site, [], [task.name for task in reversed(tasks)])
        _let_go(sites, tasks)


def drop(sites: Sites, site: str, streams: list[str], tasks: list[str]) -> None:
    _quietly(lambda: sites.peer(site).call("drop", timeout_s=30.0, streams=streams, tasks=tasks))


def _let_go(sites: Sites, tasks: Iterable[TaskSpec]) -> None:
    """Nobody keeps tuples for these tasks any more, whether or not they could say so themselves."""
    for task in tasks:
        for source in task.inputs:
            _quietly(partial(_detach, sites, source, task.name))


def _detach(sites: Sites, source: Input, consumer: str) -> None:
    peer = sites.peer(source.site)
    peer.call("detach", timeout_s=2.0, stream=source.stream, consumer=consumer)


def _quietly(action: Callable[[], object]) -> None:
    try:
        action()
    except AnabranchError:
        return
