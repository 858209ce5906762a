"""Whatever has a name is changed by one at a time. What stands in the way is kept, shown and
tried again, never a reason to throw away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from types import TracebackType

from anabranch.errors import AnabranchError
from anabranch.link.reports import Delay
from anabranch.runtime.base import Runtime
from anabranch.runtime.troubles import Backoff


class Turns:
    def __init__(self, runtime: Runtime) -> None:
        self._taken: set[str] = set()
        self._changed = runtime.signal()

    def free(self, names: Iterable[str]) -> bool:
        return self._taken.isdisjoint(names)

    async def wait(self, names: Iterable[str]) -> None:
        """Waits until nobody changes any of these."""
        wanted = set(names)
        while not self.free(wanted):
            await self._changed.wait()

    def of(self, names: Iterable[str]) -> Turn:
        """`async with` it: the block may change these, once nobody else does."""
        return Turn(self, set(names))

    def take(self, names: set[str]) -> None:
        self._taken |= names

    def give_back(self, names: set[str]) -> None:
        self._taken -= names
        self._changed.notify()


class Turn:
    def __init__(self, turns: Turns, names: set[str]) -> None:
        self._turns = turns
        self._names = names

    async def __aenter__(self) -> None:
        await self._turns.wait(self._names)
        self._turns.take(self._names)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._turns.give_back(self._names)


PASSING = Backoff(0.5, 10.0)
FINAL = Backoff(5.0, 60.0)
"""Trying again gives the same, unless a person has done something about it."""


@dataclass(frozen=True)
class Obstacle:
    """Why a source or task has not been put back; `since` is when the obstacle was first met, by
    the runtime's clock.
    """

    error: AnabranchError
    since: float
    tries: int
    again_at: float

    def report(self, now: float) -> Delay:
        return Delay(self.error.line(), self.error.passes, round(now - self.since, 1))


class Obstacles:
    """The obstacles, by the name of what cannot go on. `say` is called when one is met and when it
    is gone.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._met: dict[str, Obstacle] = {}

    def met(self, names: Iterable[str], error: AnabranchError, now: float) -> None:
        """Notes what is in the way of these, which hang together: so they are tried again
        together.
        """
        pauses = PASSING if error.passes else FINAL
        tries = {name: self._tries(name, error) for name in sorted(names)}
        again_at = now + pauses.pause_s(max(tries.values(), default=1), min(tries, default=""))
        new = False
        for name, count in tries.items():
            before = self._met.get(name)
            new = new or before is None or before.error.line() != error.line()
            self._met[name] = Obstacle(error, before.since if before else now, count, again_at)
        if new:
            how = "it is tried again" if error.passes else "it is left as it is"
            self._say(f"cannot go on yet: {error.line().rstrip('.')}; {how}")

    def _tries(self, name: str, error: AnabranchError) -> int:
        before = self._met.get(name)
        return before.tries + 1 if before and before.error.passes == error.passes else 1

    def over(self, names: Iterable[str], now: float) -> None:
        """Ends the obstacles of these names, which run or no longer exist."""
        gone = {name: obstacle for name in names if (obstacle := self._met.pop(name, None))}
        if gone:
            longest = max(now - one.since for one in gone.values())
            self._say(f"{_some(sorted(gone))} goes on after {longest:.0f} s")

    def keep(self, lost: Collection[str], now: float) -> None:
        """Keeps only obstacles of what is still `lost`: somebody else has put the others back, or
        they were dropped.
        """
        self.over([name for name in self._met if name not in lost], now)

    def in_the_way(self, now: float) -> set[str]:
        """The names that should not be tried yet."""
        return {name for name, one in self._met.items() if one.again_at > now}

    def report(self, now: float) -> dict[str, Delay]:
        return {name: one.report(now) for name, one in self._met.items()}


def _some(names: list[str], most: int = 3) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
