"""Workers are replaced, and keys dealt out anew, beside the watch: what a dead worker owes is
estimated meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from anabranch.errors import AnabranchError
from anabranch.plan.catalog import ApproximateDef

AT_ONCE = 4


class Changes:
    """`wake` is called when one has been made, or has failed."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.problems: dict[str, str] = {}
        """Query → why it could not be changed, the last time that was tried."""
        self._wake = wake
        self._pool = ThreadPoolExecutor(AT_ONCE, "change")
        self._begun: dict[tuple[str, str], Future[None]] = {}

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, made: ApproximateDef, what: str, change: Callable[[], None]) -> None:
        """Unless it has begun."""
        place = (made.template.run, what)
        if place not in self._begun:
            self._begun[place] = self._pool.submit(change)
            self._begun[place].add_done_callback(lambda done: self._wake())

    def done(self, made: ApproximateDef, what: str) -> bool:
        """Once, when it has been made. If it failed, it may be begun again."""
        place = (made.template.run, what)
        if place not in self._begun or not self._begun[place].done():
            return False
        self.problems.pop(made.name, None)
        try:
            self._begun.pop(place).result()
        except AnabranchError as error:
            self.problems[made.name] = error.line()
            return False
        return True
