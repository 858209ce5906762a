"""Re-placement: moves what should be elsewhere, several operators at once; standbys follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from anabranch.coordinator.base.reports import Moved, Replan
from anabranch.coordinator.control.control import Control
from anabranch.coordinator.placement.placing import Placing
from anabranch.errors import AnabranchError
from anabranch.runtime.base import Mutex, Runtime, Spawned

AT_ONCE = 8
"""Operators that are made ready at the same time."""


class Replacement:
    """`placing` says what should move. It is asked every `every_s` seconds (never, if 0), and `say`
    is called with the result.
    """

    def __init__(
        self,
        runtime: Runtime,
        control: Control,
        placing: Placing,
        every_s: float,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._runtime = runtime
        self._control = control
        self._placing = placing
        self._every_s = every_s
        self._say = say
        self._last = runtime.now()
        self._turn = Mutex(runtime)
        self._begun: Spawned[None] | None = None
        self._problem = ""
        self._wanted: frozenset[tuple[str, str]] = frozenset()

    def look(self) -> None:
        """Begins if it is time."""
        due = self._every_s and self._runtime.now() - self._last >= self._every_s
        if due and not self.busy:
            self._last = self._runtime.now()
            self._begun = self._runtime.spawn(self._by_itself(), "replan")

    @property
    def busy(self) -> bool:
        return self._turn.held or (self._begun is not None and not self._begun.done)

    def close(self) -> None:
        if self._begun:
            self._begun.cancel()

    async def _by_itself(self) -> None:
        """Move what two looks in a row want at the same sites: what one look alone wants may be a
        moment's noise. What a deadline waits for moves at once."""
        try:
            found = await self.run(dry_run=True)
            wanted = frozenset((one.task, one.site) for one in found.moves)
            sure = wanted <= self._wanted or any(one.why for one in found.moves)
            self._wanted = wanted
            if sure:
                found = await self.run()
        except AnabranchError as error:
            if self._problem != error.line():  # once, until it is another
                self._problem = error.line()
                self._say(f"nothing could be placed anew: {self._problem}")
            return
        self._problem = ""
        if not sure:
            return
        for one in found.moves:
            where = f"{one.task} from {one.was_at} to {one.site}"
            self._say(f"{where}: {one.problem}" if one.problem else f"moved {where}")
        for one in found.standbys:
            self._say(f"the standby of {one.task} went from {one.was_at} to {one.site}")

    async def run(self, *, dry_run: bool = False) -> Replan:
        """The moves; unless it is a `dry_run`, they have been made. Raises PlacementError."""
        if dry_run:
            return await self._runtime.blocking(self._placing.again)
        async with self._turn:
            self._last = self._runtime.now()
            found = await self._runtime.blocking(self._placing.again)
            moves = await self.move(found.moves)
            if any(not one.problem for one in moves):
                await self._runtime.blocking(self._placing.moved)
            standbys = await self._control.follow()
            followed = tuple(Moved(*one) for one in standbys)
            return replace(found, moves=tuple(moves), standbys=followed)

    async def move(self, moves: Sequence[Moved]) -> list[Moved]:
        """Makes all moves ready at once, and takes over one after the other. A move that fails
        leaves its operator where it is.
        """
        taking_over = Mutex(self._runtime)
        mover = self._control.mover()

        async def one(wanted: Moved) -> Moved:
            try:
                pause_ms = await mover.timed(wanted.task, wanted.site, taking_over)
            except AnabranchError as error:
                return replace(wanted, problem=error.line())
            return replace(wanted, pause_ms=pause_ms)

        done: list[Moved] = []
        for begin in range(0, len(moves), AT_ONCE):
            together = await self._runtime.outcomes(
                [one(wanted) for wanted in moves[begin : begin + AT_ONCE]]
            )
            done += [end for end in together if isinstance(end, Moved)]
        return done
