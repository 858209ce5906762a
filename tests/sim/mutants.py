"""The protocol with one rule broken at a time; the simulation must notice each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from anabranch.connectors.sink import ANEW, Beginning, Continued
from anabranch.coordinator.control.control import Control
from anabranch.coordinator.control.restorer import Restoration
from anabranch.coordinator.deploy.deploy import Rollout as Deploying
from anabranch.coordinator.protection.protect import Protector
from anabranch.disk.folder import Folder
from anabranch.errors import CannotResume, Gap, SiteError, StorageError
from anabranch.link.inlet import LiveInlet
from anabranch.link.messages import ConsumerState
from anabranch.link.outlet import LiveOutlet
from anabranch.link.store import ENTRY_BYTES, ENTRY_ROWS, OutletStore, Shelves
from anabranch.link.subscription import Subscription
from anabranch.log.segment import Entry, Segment
from anabranch.log.stream_log import StreamLog
from anabranch.plan.tasks import TaskSpec
from anabranch.runtime.base import Runtime
from anabranch.site.deployment import Deployment
from anabranch.site.links.links import Links
from anabranch.site.sources import reading_again
from anabranch.site.sources.intake import Intake, Parts
from anabranch.site.sources.journal import Journal
from anabranch.site.sources.pace import Steps
from anabranch.site.sources.reading import Reading
from anabranch.site.standby.guard import Guard
from anabranch.site.standby.inputs import StandbyInputs
from anabranch.site.standby.protection import StandbyGuards
from anabranch.site.tasks.restart_points import PointsKeeper
from anabranch.site.tasks.snapshots import States
from anabranch.site.tasks.task import Task
from anabranch.snapshot.state import State
from anabranch.standby.secondary import Restart, Secondary
from anabranch.stream.batch import START_WATERMARK
from anabranch.stream.outlet import Consumer, Outlet
from anabranch.stream.restart import RestartLog, RestartPoint, SnapshotName
from simulation.disk import SimAppending

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: list[Mutant] = []
NOTICED_BY = {
    "those_who_need_no_more_are_waited_for": 98,
    "one_error_ends_a_coroutine_for_good": 94,
    "points_are_told_before_they_are_kept": 19,
    "what_is_read_again_is_not_compared": 35,
    "windows_are_forgotten": 17,
    "receipt_releases": 5,
    "level0_moves_the_point": 17,
    "the_slowest_consumer_does_not_count": 14,
    "outputs_are_counted": 5,
    "instants_are_forgotten": 17,
    "a_journal_that_is_too_short_is_gone_on_with": 77,
    "what_is_given_is_not_journaled_before": 21,
    "nothing_is_forced_to_the_disk": 58,
    "what_the_clock_moved_is_not_kept": 25,
    "half_a_record_stays_in_the_journal": 34,
}
"""A seed that notices the mutant, where others have to be tried for long."""


def mutant(broken: Mutant) -> Mutant:
    MUTANTS.append(broken)
    return broken


# -- numbering, keeping, releasing ---------------------------------------------------------------


@mutant
def windows_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Inputs are released as soon as they were taken, whatever open windows need."""
    whole = Task.give

    def give(self: Task, taken: Sequence[Any], produced: Any) -> None:
        lasts = tuple(one.last for one in taken)
        whole(self, taken, replace(produced, needless=lasts))

    patch.setattr(Task, "give", give)


@mutant
def receipt_releases(patch: pytest.MonkeyPatch) -> None:
    """A tuple is let go of when it has merely arrived."""
    whole = Outlet.level0

    def level0(self: Outlet, consumer: str, *told: int) -> None:
        whole(self, consumer, *told)
        if known := self.consumers.get(consumer):
            known.released = max(known.released, known.received)
        self._release()

    patch.setattr(Outlet, "level0", level0)


@mutant
def level0_moves_the_point(patch: pytest.MonkeyPatch) -> None:
    """A task's restart point follows what its consumers received, not what they need no more."""

    def acknowledged(self: Outlet) -> int:
        return min((one.received for one in self.consumers.values()), default=self.last)

    patch.setattr(Outlet, "acknowledged", acknowledged)


@mutant
def the_slowest_consumer_does_not_count(patch: pytest.MonkeyPatch) -> None:
    """What one consumer needs no more is let go of, though another does."""

    def acknowledged(self: Outlet) -> int:
        return max((one.released for one in self.consumers.values()), default=self.last)

    patch.setattr(Outlet, "acknowledged", acknowledged)


@mutant
def outputs_are_counted(patch: pytest.MonkeyPatch) -> None:
    """A standby that begins anew goes on with its own numbers instead of the point's."""
    whole = LiveOutlet.start_at

    def start_at(self: LiveOutlet, position: int, given: int | None = None) -> None:
        whole(self, self.last or position, given)

    patch.setattr(LiveOutlet, "start_at", start_at)


@mutant
def instants_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A replay does not know which results are old ones."""
    whole = RestartLog.add

    def add(self: RestartLog, point: RestartPoint) -> None:
        whole(self, replace(point, instant=START_WATERMARK))

    patch.setattr(RestartLog, "add", add)


# -- sources and what they keep ------------------------------------------------------------------


@mutant
def a_journal_that_is_too_short_is_gone_on_with(patch: pytest.MonkeyPatch) -> None:
    """C2: nobody compares it with the restart point, or with what readers have had."""
    patch.setattr(Reading, "_must_cover", lambda self, position: None)
    patch.setattr(Reading, "_must_not_be_behind", lambda self: None)


@mutant
def what_is_given_is_not_journaled_before(patch: pytest.MonkeyPatch) -> None:
    """C2: a process that dies in between gives other tuples at the same positions."""
    whole = Reading._give

    def give(self: Reading, judged: Any, given: int = 0) -> Steps:
        yield from whole(self, judged, given)
        if late := self.__dict__.pop("late", None):
            late()

    def enter(self: Reading, journal: Journal, entry: Any) -> None:
        self.__dict__["late"] = lambda: journal.add(entry)

    patch.setattr(Reading, "_give", give)
    patch.setattr(Reading, "_enter", enter)


@mutant
def nothing_is_forced_to_the_disk(patch: pytest.MonkeyPatch) -> None:
    """C2: a loss of power takes what others were told."""
    patch.setattr(SimAppending, "sync", lambda self: None)


@mutant
def what_the_clock_moved_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    """H2: a watermark was sent, and the next process knows nothing of it."""
    patch.setattr(Reading, "_promise", lambda self, floor: None)


@mutant
def half_a_record_stays_in_the_journal(patch: pytest.MonkeyPatch) -> None:
    """H4: a write that failed leaves something behind, and the next one follows it."""
    whole = SimAppending.append

    def append(self: SimAppending, data: bytes) -> None:
        try:
            whole(self, data)
        except StorageError:
            self._size = len(self._folder.disk.files[self._name])
            raise

    patch.setattr(SimAppending, "append", append)


@mutant
def points_are_told_before_they_are_kept(patch: pytest.MonkeyPatch) -> None:
    """H4: upstream lets go of what a task that is killed needs again."""

    async def keep(self: PointsKeeper, points: Any) -> None:
        """Later, perhaps."""

    patch.setattr(PointsKeeper, "keep", keep)


@mutant
def what_is_read_again_is_not_compared(patch: pytest.MonkeyPatch) -> None:
    """H9: a compacted topic gives fewer tuples, and all later ones other positions."""
    patch.setattr(reading_again, "_verify", lambda table, entries: None)
    whole = Intake.again

    def again(self: Intake, table: Any, entries: list[Any]) -> Any:
        with suppress(CannotResume):
            return whole(self, table, entries)
        rows = [len(table)] if len(entries) == 1 else [one.rows for one in entries]
        moments = [one.after.now_us for one in entries]
        return self._judged(table, Parts(rows, moments, [one.after.floor for one in entries]))

    patch.setattr(Intake, "again", again)


@mutant
def one_error_ends_a_coroutine_for_good(patch: pytest.MonkeyPatch) -> None:
    """H3: what goes on by itself is not begun again after a full disk."""

    def supervise(self: Runtime, name: str, make: Callable[[], Any]) -> Any:
        return self.spawn(make(), name)

    patch.setattr(Runtime, "supervise", supervise)


# -- what memory does not hold -------------------------------------------------------------------


@mutant
def the_disk_lets_go_of_what_was_sent(patch: pytest.MonkeyPatch) -> None:
    """A segment goes once its tuples have been written, whoever still has to read them."""
    whole = StreamLog.release
    patch.setattr(StreamLog, "has_released", lambda self, position: len(self._segments) > 1)
    patch.setattr(StreamLog, "release", lambda self, position: whole(self, self.last))


@mutant
def a_segment_is_read_from_its_second_entry_on(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes to the end of one segment misses something of the next."""
    whole = Segment.entries

    def entries(self: Segment, folder: Folder, after: int = 0) -> Iterator[Entry]:
        found = whole(self, folder, after)
        if after < self.first:
            next(found, None)
        yield from found

    patch.setattr(Segment, "entries", entries)


@mutant
def memory_forgets_before_the_disk_has_it(patch: pytest.MonkeyPatch) -> None:
    """Whoever reads meanwhile finds it in neither."""

    async def spill(self: OutletStore, shelves: Shelves) -> None:
        self._log = log = self._log or shelves.new_log(self.outlet.stream)
        batches = self.outlet.oldest(ENTRY_BYTES, ENTRY_ROWS)
        self.outlet.forget(batches[-1].last)
        await self._runtime.blocking(self._write, log, batches)

    patch.setattr(OutletStore, "_spill", spill)


# -- restart points ------------------------------------------------------------------------------


@mutant
def a_point_is_of_one_input(patch: pytest.MonkeyPatch) -> None:
    """What is known of a point from one side replaces what is known from another."""
    patch.setattr(RestartPoint, "join", lambda self, other: other)


@mutant
def those_who_need_no_more_are_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A consumer that has all from another producer of the stream holds this one up."""
    whole = Outlet.level0

    def level0(self: Outlet, consumer: str, *told: int) -> None:
        known = self.consumers.get(consumer)
        sent = known.sent if known else 0
        whole(self, consumer, *told)
        if known:
            known.sent = sent

    def unsent_bytes(self: Outlet) -> int:
        slowest = min((one.sent for one in self.consumers.values()), default=self.last)
        index = bisect_right(self._lasts, slowest)
        return self._bytes - (self._ends[index - 1] if index else self._released_bytes)

    patch.setattr(Outlet, "level0", level0)
    patch.setattr(Outlet, "unsent_bytes", unsent_bytes)


# -- shipping ------------------------------------------------------------------------------------


@mutant
def others_are_not_replayed(patch: pytest.MonkeyPatch) -> None:
    """A standby that begins anew behind a gap does so without what it was shipped of others."""
    whole = Secondary._restart

    def restart(self: Secondary) -> Restart:
        point, kept = whole(self).point, whole(self).kept
        return Restart(point, (kept[0], *(() for _ in kept[1:])))

    patch.setattr(Secondary, "_restart", restart)


@mutant
def shipments_are_not_kept(patch: pytest.MonkeyPatch) -> None:
    """A standby that begins anew has nothing left of what it was shipped behind the point."""
    whole = Secondary._restart
    patch.setattr(
        Secondary,
        "_restart",
        lambda self: Restart(whole(self).point, tuple(() for _ in self._inputs)),
    )


@mutant
def what_is_shipped_is_let_go_of(patch: pytest.MonkeyPatch) -> None:
    """The outlet relies on the standby for what it has shipped to it."""
    whole = Outlet.due

    def due(self: Outlet, consumer: str, epoch: int) -> Any:
        shipment = whole(self, consumer, epoch)
        if shipment:
            known = self.consumers[consumer]
            known.released = max(known.released, known.received)
            self._release()
        return shipment

    patch.setattr(Outlet, "due", due)


# -- taking over ---------------------------------------------------------------------------------


@mutant
def nobody_is_superseded(patch: pytest.MonkeyPatch) -> None:
    """Those who produced before go on to be served and believed. Since restart points hold for any
    of them, that does no harm as long as one who was overtaken goes on where it is told to."""
    gaps_are_final(patch)

    def current(self: Outlet, consumer: str, *asked: Any, **more: Any) -> Consumer | None:
        return self.consumers.get(consumer)

    patch.setattr(Outlet, "_current", current)


def gaps_are_final(patch: pytest.MonkeyPatch) -> None:
    """A primary that an earlier one's late acks have overtaken fails instead of going on there."""

    def behind(self: StandbyGuards, task: Task, error: Gap) -> None:
        task.fail(error)

    patch.setattr(StandbyGuards, "behind", behind)


@mutant
def states_are_told_before_they_are_kept(patch: pytest.MonkeyPatch) -> None:
    """A restart point names a snapshot that is still being written."""
    whole = States.keep

    async def keep(
        self: States, task: str, epoch: int, state: State, needed: Any
    ) -> tuple[SnapshotName, int]:
        there = self._store(task).names()
        number = max((one.number for one in there), default=0) + 1

        async def write() -> None:
            await self._runtime.sleep(0.3)
            await whole(self, task, epoch, state, needed)

        self._runtime.spawn(write())
        return SnapshotName(epoch, number, self.name), 0

    patch.setattr(States, "keep", keep)


@mutant
def a_state_is_taken_for_the_inputs_after_it(patch: pytest.MonkeyPatch) -> None:
    """A restart goes on where the task stood when its state was kept, and begins with none."""

    async def found(*asked: Any, **options: Any) -> None:
        return None

    patch.setattr(Task, "_kept_at", found)


@mutant
def inputs_are_not_claimed(patch: pytest.MonkeyPatch) -> None:
    """A standby follows its inputs without asking what was let go of."""

    async def all_claimed(self: Guard) -> list[ConsumerState]:
        return [ConsumerState(0, None) for _ in self.task.spec.inputs]

    patch.setattr(Guard, "_all_claimed", all_claimed)
    gaps_are_final(patch)


@mutant
def nobody_is_told(patch: pytest.MonkeyPatch) -> None:
    """Nobody hears of a take-over, from the one who takes over or from those who know."""
    patch.setattr(Guard, "_announce", lambda self: None)
    patch.setattr(Links, "learn", lambda self, news: {})


@mutant
def a_successor_stays_silent(patch: pytest.MonkeyPatch) -> None:
    """A task that has taken over does not serve those who read it."""
    patch.setattr(Task, "take_over", lambda self: setattr(self, "role", "primary"))


@mutant
def the_claim_is_not_believed(patch: pytest.MonkeyPatch) -> None:
    """A standby goes on with what it has, whatever its producers have let go of meanwhile."""

    async def take_over(self: StandbyInputs, states: Sequence[ConsumerState]) -> None:
        """As it is."""

    patch.setattr(StandbyInputs, "take_over", take_over)
    gaps_are_final(patch)


@mutant
def sinks_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """Who goes on with a sink looks what is there, and leaves the one before to write."""

    def open_(self: Continued, begin: Beginning = ANEW) -> None:
        self._last = self.sink.written() or 0

    patch.setattr(Continued, "open", open_)


# -- links ---------------------------------------------------------------------------------------


@mutant
def breaks_are_final(patch: pytest.MonkeyPatch) -> None:
    """A link that broke is not made anew."""
    whole = Subscription._feed

    async def feed(self: Subscription) -> bool:
        try:
            await whole(self)
        except SiteError:
            return True
        return True

    patch.setattr(Subscription, "_feed", feed)


@mutant
def links_begin_at_the_beginning(patch: pytest.MonkeyPatch) -> None:
    """A link that is made anew asks for what its inlet has already let go of."""
    patch.setattr(LiveInlet, "received", property(lambda self: 0))


@mutant
def a_replaced_task_lets_go(patch: pytest.MonkeyPatch) -> None:
    """One that was replaced tells upstream that nobody needs its inputs any more."""

    async def discard(self: Deployment, task: Task) -> None:
        if self.tasks.get(task.spec.name) is task:
            task.epoch = 10**9
            await self._end(self._take_out([task.spec.name]), tell=True)

    patch.setattr(Deployment, "discard", discard)


# -- the coordinator -----------------------------------------------------------------------------


@mutant
def dead_standbys_stay(patch: pytest.MonkeyPatch) -> None:
    """Nobody is posted for a standby that has died or taken over."""
    patch.setattr(Protector, "look", lambda self, known: [])


@mutant
def nothing_is_restored(patch: pytest.MonkeyPatch) -> None:
    """A site that was killed stays empty."""

    async def restore(self: Control) -> list[str]:
        return []

    patch.setattr(Control, "restore", restore)


@mutant
def readers_are_not_attached_again(patch: pytest.MonkeyPatch) -> None:
    """A source that is restored keeps nothing for those who read it."""

    async def attach_readers(self: Restoration) -> None:
        """Nobody."""

    patch.setattr(Restoration, "_attach_readers", attach_readers)


@mutant
def consumers_come_when_they_like(patch: pytest.MonkeyPatch) -> None:
    """Tuples pass before everyone is there."""

    async def attach_input(self: Deploying, task: TaskSpec, index: int) -> int:
        return 0

    patch.setattr(Deploying, "_attach_input", attach_input)
