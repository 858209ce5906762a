"""Coroutines and the signals they wait for, independent of what drives them."""

from __future__ import annotations

import abc
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import Any, Generic, Self, TypeVar

from anabranch.errors import AnabranchError
from anabranch.runtime.troubles import Troubles

T = TypeVar("T")


class Runtime(abc.ABC):
    """The runtime of one process. A thread of its own uses `with runtime:` to touch what coroutines
    touch: no coroutine runs meanwhile.
    """

    def __init__(self) -> None:
        self.troubles = Troubles()

    @abc.abstractmethod
    def now(self) -> float:
        """The time in seconds, of a clock that only goes forward."""

    @abc.abstractmethod
    def later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        """Calls `do` after this time, between two steps of coroutines."""

    @abc.abstractmethod
    async def blocking(self, do: Callable[..., T], *args: Any) -> T:
        """Runs `do` in a place where it may take its time; returns or raises what it does."""

    @abc.abstractmethod
    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine for a thread outside; returns or raises what it does, once it has
        ended.
        """

    def crashed(self, name: str, error: Exception) -> None:
        """Takes note that a coroutine which nobody waits for has ended with an error, and is not
        begun again.
        """
        self.troubles.happened(name or "a coroutine", error, self.now())

    def failed(self, name: str, error: Exception) -> float:
        """Takes note that a supervised coroutine has ended with an error; returns how long to wait
        before it is begun again.
        """
        pause_s = self.troubles.happened(name, error, self.now())
        return pause_s * self.chance(0.5, 1.0)

    @abc.abstractmethod
    def chance(self, least: float, most: float) -> float:
        """A number between these, so that things which failed together do not try again
        together.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def signal(self) -> Signal:
        return Signal(self)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str = "") -> Spawned[T]:
        """Begins a coroutine that somebody waits for, or that ends before long. If it fails and
        nobody waits, the failure is counted and shown.
        """
        return Spawned(self, coroutine, name)

    def supervise(self, name: str, make: Callable[[], Coroutine[Any, Any, None]]) -> Spawned[None]:
        """Begins a coroutine that runs by itself until it returns or is cancelled. If it ends by an
        exception of any kind, `make` makes a new one after a pause, which goes on from what its
        object knows. Each failure is counted and shown.
        """

        async def whole() -> None:
            while True:
                try:
                    await make()
                    return
                except Exception as error:
                    pause_s = self.failed(name, error)
                await self.sleep(pause_s)

        return self.spawn(whole(), name)

    def sleep(self, seconds: float) -> Wait:
        return Wait(None, seconds)

    async def outcomes(
        self, coroutines: Sequence[Coroutine[Any, Any, T]]
    ) -> list[T | AnabranchError]:
        """The result of each coroutine, or the error that answered it, once the last is done."""

        begun = [self.spawn(one) for one in coroutines]
        for spawned in begun:
            spawned.heard = True
        return [await one.outcome() for one in begun]


class Wait:
    """Waits until the signal comes or the time has passed; True if the signal came."""

    __slots__ = ("seconds", "signal")

    def __init__(self, signal: Signal | None, seconds: float | None) -> None:
        self.signal = signal
        self.seconds = seconds

    def __await__(self) -> Generator[Wait, bool, bool]:
        return (yield self)


class Signal:
    """Wakes those who wait at that moment; a later waiter waits for the next time."""

    __slots__ = ("_runtime", "_waiting")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: list[tuple[Spawned[Any], int]] = []

    def wait(self, seconds: float | None = None) -> Wait:
        return Wait(self, seconds)

    def add(self, who: Spawned[Any], turn: int) -> None:
        self._waiting = [one for one in self._waiting if one[0].waits(one[1])]
        self._waiting.append((who, turn))

    def notify(self) -> None:
        with self._runtime:
            waiting, self._waiting = self._waiting, []
            for who, turn in waiting:
                if who.waits(turn):
                    self._runtime.later(0, who.resume, turn, True)


class Bell:
    """A signal that a waiter does not miss if it is busy when the signal comes."""

    def __init__(self, runtime: Runtime) -> None:
        self._rung = False
        self._signal = runtime.signal()

    def ring(self) -> None:
        self._rung = True
        self._signal.notify()

    async def heard(self, seconds: float | None = None) -> bool:
        """Waits until it has rung since the last time; False if the time has passed first."""
        if not self._rung:
            await self._signal.wait(seconds)
        rung, self._rung = self._rung, False
        return rung


class Spawned(Generic[T]):
    """A coroutine that is under way."""

    __slots__ = (
        "_coroutine",
        "_ended",
        "_error",
        "_name",
        "_running",
        "_runtime",
        "_turn",
        "_value",
        "heard",
    )

    def __init__(self, runtime: Runtime, coroutine: Coroutine[Any, Any, T], name: str) -> None:
        self._runtime = runtime
        self._coroutine: Coroutine[Any, Any, T] | None = coroutine
        self._name = name
        self._turn = 0
        self._running = False
        self.heard = False
        """Somebody is going to ask how it ended."""
        self._value: T | None = None
        self._error: Exception | None = None
        self._ended = Signal(runtime)
        runtime.later(0, self.resume, 0, None)

    @property
    def done(self) -> bool:
        return self._coroutine is None

    def waits(self, turn: int) -> bool:
        return self._turn == turn and self._coroutine is not None

    async def join(self) -> T:
        """Returns or raises what the coroutine does."""
        self.heard = True
        while not self.done:
            await self._ended.wait()
        if self._error:
            raise self._error
        return self._value  # type: ignore[return-value]

    async def within(self, seconds: float) -> bool:
        """Waits whether it ends before this time has passed; if not, it goes on by itself."""
        deadline = self._runtime.now() + seconds
        while not self.done and (left := deadline - self._runtime.now()) > 0:
            self.heard = True
            await self._ended.wait(left)
        self.heard = self.done
        return self.done

    async def outcome(self) -> T | AnabranchError:
        """What it returns, or the error that answered it."""
        try:
            return await self.join()
        except AnabranchError as error:
            return error

    def cancel(self) -> None:
        """Stops it: it goes no further, and its `finally` has run. A coroutine that cancels itself
        stops as soon as it would wait.
        """
        with self._runtime:
            coroutine, self._coroutine = self._coroutine, None
            if coroutine and not self._running:
                coroutine.close()
            self._ended.notify()

    def resume(self, turn: int, came: bool) -> None:
        """Resumes the coroutine, if nothing else has woken it in this turn before."""
        coroutine = self._coroutine
        if turn != self._turn or coroutine is None:
            return
        self._turn += 1
        self._running = True
        try:
            wait = coroutine.send(came if turn else None)
        except StopIteration as end:
            self._value, self._coroutine = end.value, None
            self._ended.notify()
            return
        except Exception as error:
            self._error, self._coroutine = error, None
            if self.heard:
                self._ended.notify()
            else:
                self._runtime.crashed(self._name, error)
            return
        finally:
            self._running = False
        if self._coroutine is None:  # it has cancelled itself
            coroutine.close()
            return
        if wait.signal is not None:
            wait.signal.add(self, self._turn)
        if wait.seconds is not None:
            self._runtime.later(wait.seconds, self.resume, self._turn, False)


class Mutex:
    """`async with` it: one coroutine at a time is inside, whatever it waits for meanwhile."""

    def __init__(self, runtime: Runtime) -> None:
        self._free = Signal(runtime)
        self._held = False

    @property
    def held(self) -> bool:
        return self._held

    async def __aenter__(self) -> None:
        while self._held:
            await self._free.wait()
        self._held = True

    async def __aexit__(self, *error: object) -> None:
        self._held = False
        self._free.notify()
