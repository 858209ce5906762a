"""The snapshots of a site's tasks: when they are taken, that they are kept, that they are found."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from anabranch.disk.folder import Folder
from anabranch.errors import AnabranchError, CannotResume, SiteError, StorageError, TaskError
from anabranch.link.reports import SnapshotReport
from anabranch.plan.tasks import TaskSpec
from anabranch.runtime.base import Runtime, Spawned
from anabranch.site.tasks.body import Snapshotting, Taken
from anabranch.site.tasks.restart_points import PointsFile
from anabranch.site.tasks.state_budget import StateBudget
from anabranch.snapshot.state import KeptPieces, State
from anabranch.snapshot.store import Manifest, SnapshotStore, remove_snapshots
from anabranch.snapshot.timing import Held, Limits, why_now
from anabranch.stream.batch import START_WATERMARK
from anabranch.stream.restart import RestartPoint, SnapshotName
from anabranch.units import show_bytes

FETCH_AGAIN_S = 0.5
MEASURE_S = 1.0
"""Between two looks at how large a state is."""


class States:
    """The states of the site `name`, in its state folder; without one no state is kept."""

    def __init__(
        self,
        name: str,
        runtime: Runtime,
        folder: Folder | None,
        points: PointsFile,
        *,
        limits: Limits,
        budget: StateBudget,
        synced: bool = False,
    ) -> None:
        """A state is kept when upstream holds more than the `limits` for its task. All states of
        this process are within the `budget`."""
        self.name = name
        self._runtime = runtime
        self._folder = folder
        self._points = points
        self.limits = limits
        self.budget = budget
        self._synced = synced
        self._stores: dict[str, SnapshotStore] = {}

    @property
    def lasting(self) -> bool:
        return self._folder is not None

    def _store(self, task: str) -> SnapshotStore:
        if self._folder is None:
            raise StorageError("there is no state folder", place=self.name)
        if task not in self._stores:
            self._stores[task] = SnapshotStore(self._folder, task, synced=self._synced)
        return self._stores[task]

    def forget(self, tasks: Iterable[str]) -> None:
        """They were dropped, or begin anew. Blocks."""
        if self._folder is not None:
            gone = list(tasks)
            remove_snapshots(self._folder, gone)
            for task in gone:
                self._stores.pop(task, None)

    async def keep(
        self, task: str, epoch: int, state: State, needed: Callable[[], set[SnapshotName]]
    ) -> tuple[SnapshotName, int]:
        """Once it is on the disk: its name, and how large it is. Others than that, those `needed`
        and the one that a kept restart point names are removed. Raises StorageError."""

        store = self._store(task)

        def write() -> tuple[SnapshotName, int]:
            newest = max((one.number for one in store.names()), default=0)
            name = SnapshotName(epoch, newest + 1, self.name)
            return name, store.keep(name, state).size

        name, size = await self._runtime.blocking(write)
        left = {name, *needed(), *self._named(task)}
        with suppress(StorageError):  # what could go is still there the next time
            await self._runtime.blocking(store.keep_only, left)
        return name, size

    def _named(self, task: str) -> set[SnapshotName]:
        point = self._points.all().get(task)
        return {point.snapshot} if point and point.snapshot else set()

    async def load(self, task: str, name: SnapshotName) -> KeptPieces | None:
        """None if it is not here. Raises CannotResume if it is damaged."""
        if self._folder is None:
            return None
        return await self._runtime.blocking(self._store(task).load, name)

    async def adopt(self, task: str, name: SnapshotName, kept: KeptPieces) -> None:
        """What another site has kept, so that it is here as well."""
        if self._folder is not None:
            await self._runtime.blocking(self._store(task).keep, name, kept.as_state())

    async def manifest(self, task: str, name: SnapshotName) -> Manifest | None:
        """None if it is not here."""
        if self._folder is None:
            return None
        return await self._runtime.blocking(self._store(task).manifest, name)

    async def read(self, task: str, name: SnapshotName, piece: int) -> bytes | None:
        """None if the state is not here any more. Raises CannotResume if it is damaged."""
        return await self._runtime.blocking(self._store(task).piece, name, piece)


class TaskState:
    """The state of one task, which `body` holds: when it is kept, and that it is found again."""

    def __init__(
        self, runtime: Runtime, states: States, spec: TaskSpec, body: Snapshotting
    ) -> None:
        self._runtime = runtime
        self._states = states
        self._task, self._query = spec.name, spec.query
        self._measured, self._memory = -MEASURE_S, 0
        """When the body was asked how large it is, and what it said."""
        self._body = body
        recovery_us = spec.recovery_us
        self._limits = states.limits.within(recovery_us / 1e6 if recovery_us else None)
        self._since = runtime.now()
        """When it was kept last, or tried to be, or the task began."""
        self._bytes_per_row = 0.0
        self._took_s = 0.0
        self._state: State | None = None
        """As it was after the last step, if it is to be kept."""
        self._keeping: Spawned[None] | None = None
        self._why = ""
        self._size = self._count = 0
        self._inputs: tuple[int, ...] = ()
        self._problem = ""

    # -- in memory -------------------------------------------------------------------------------

    def measure(self) -> None:
        """Between steps, now and then. Raises TaskError if it is too large to go on: then nothing
        of it is held any more."""
        now = self._runtime.now()
        if now < self._measured + MEASURE_S:
            return
        self._measured, self._memory = now, self._body.state_bytes
        budget = self._states.budget
        if not budget.holds(self, self._memory):
            self._body.reopen(START_WATERMARK)
            budget.forget(self)
            raise TaskError(
                f"query {self._query} failed: its windows take {show_bytes(self._memory)} of the"
                f" {show_bytes(budget.total)} that all may take there",
                place=self._states.name,
                remedy="Make them shorter or have fewer keys in them, or raise `state` of that"
                " site.",
            )

    # -- keeping ---------------------------------------------------------------------------------

    def taking(self, taken: Sequence[Taken]) -> None:
        """A step begins with these."""
        if rows := sum(one.rows for one in taken):
            self._bytes_per_row = sum(one.nbytes for one in taken) / rows

    def look(self, rows: int, per_row_s: float) -> None:
        """Between steps: whether it is time to keep it. A restart would be given so many `rows`."""
        if not self._states.lasting or (self._keeping and not self._keeping.done):
            return
        held = Held(rows, rows * self._bytes_per_row, rows * per_row_s)
        since_s = self._runtime.now() - self._since
        if why := why_now(held, self._limits, since_s, self._took_s):
            self._state, self._why = self._body.snapshot(), why

    def keep(
        self,
        point: RestartPoint,
        epoch: int,
        needed: Callable[[], set[SnapshotName]],
        kept: Callable[[RestartPoint], None],
    ) -> None:
        """If it was time: write it while the task goes on, and only then tell with which `point` a
        restart may begin. The snapshots `needed` stay."""
        state, self._state = self._state, None
        if state is not None:
            writing = self._write(state, point, epoch, needed, kept)
            self._keeping = self._runtime.spawn(writing, f"keeping the state of {self._task}")

    async def _write(
        self,
        state: State,
        point: RestartPoint,
        epoch: int,
        needed: Callable[[], set[SnapshotName]],
        kept: Callable[[RestartPoint], None],
    ) -> None:
        begun = self._runtime.now()
        try:
            name, self._size = await self._states.keep(self._task, epoch, state, needed)
        except Exception as error:  # what upstream holds is enough without it
            text = error.line() if isinstance(error, AnabranchError) else repr(error)
            self._problem = f"the state of {self._task} is not kept: {text}"
            return
        finally:
            self._since = self._runtime.now()
            self._took_s = self._since - begun
        self._problem, self._inputs = "", point.inputs
        self._count += 1
        kept(replace(point, snapshot=name))

    async def close(self) -> None:
        """Nothing is written any more, and nothing held."""
        self._states.budget.forget(self)
        await self._written()

    async def _written(self) -> None:
        if self._keeping:
            await self._keeping.join()

    # -- finding it again ------------------------------------------------------------------------

    async def find(
        self,
        name: SnapshotName,
        fetch: Callable[[SnapshotName], Coroutine[Any, Any, KeptPieces | None]],
        patient: Callable[[], bool],
    ) -> KeptPieces:
        """Finds the state here, or by `fetch` at the site that has it; with `patient` it waits for
        that site. Raises TaskError if the state is nowhere, else what `fetch` raises.
        """
        states = self._states
        await self._written()
        try:
            if kept := await states.load(self._task, name):
                return kept
        except CannotResume as error:
            raise self._lost(name, error) from error
        if name.site == states.name:
            raise self._lost(name)
        while True:
            try:
                kept = await fetch(name)
                break
            except SiteError:
                if not patient():
                    raise
                await self._runtime.sleep(FETCH_AGAIN_S)
        if kept is None:
            if patient():
                raise self._lost(name)
            raise SiteError(f"{name.site} does not have state {name.number} of {self._task}")
        await states.adopt(self._task, name, kept)
        return kept

    def restore(self, kept: KeptPieces) -> None:
        """Blocks."""
        self._body.restore(kept)

    def _lost(self, name: SnapshotName, error: CannotResume | None = None) -> TaskError:
        folder = f" {error.line()}" if error else ""
        return TaskError(
            f"the state of {self._task} that its restart point names, number {name.number} of"
            f" {name.site}, is not there whole, so it would go on with an empty one.{folder}",
            place=self._states.name,
            remedy="Restore the site's state folder, or drop the query and create it again.",
        )

    def report(self) -> SnapshotReport:
        age_s = round(self._runtime.now() - self._since, 1) if self._count else None
        return SnapshotReport(
            count=self._count,
            nbytes=self._size,
            memory_bytes=self._memory,
            age_s=age_s,
            took_s=round(self._took_s, 3),
            why=self._why,
            inputs=self._inputs,
            limit_bytes=int(self._limits.nbytes),
            limit_replay_s=self._limits.replay_s,
            problem=self._problem,
        )
