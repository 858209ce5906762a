"""Who changes what: whatever has a name is changed by one at a time, and nothing waits for what
happens to others."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from anabranch.runtime.base import Runtime


class Turns:
    def __init__(self, runtime: Runtime) -> None:
        self._taken: set[str] = set()
        self._changed = runtime.signal()

    def free(self, names: Iterable[str]) -> bool:
        return self._taken.isdisjoint(names)

    async def wait(self, names: Iterable[str]) -> None:
        """Until nobody changes any of these."""
        wanted = set(names)
        while not self.free(wanted):
            await self._changed.wait()

    def of(self, names: Iterable[str]) -> Turn:
        """`async with`: change these, once nobody else does."""
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
