"""What a pocket remembers: when that is kept in its site's state folder, by which position of
its input, and whether it can be found again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.disk.folder import Folder
from anabranch.disk.records import read_records, record
from anabranch.errors import CannotResume, TaskError
from anabranch.site.tasks.pickled import packed, unpacked
from anabranch.stream.restart import FOREVER

_STATE = ".state"


class KeptState:
    """One file for each of some input positions: the state after all tuples up to there.

    `needed` is the position of the restart point that is on the disk. Files for earlier positions
    are deleted, since nobody restarts there any more. All methods raise StorageError.
    """

    def __init__(self, folder: Folder, needed: Callable[[], int]) -> None:
        self._folder = folder
        self._needed = needed

    def forget(self) -> None:
        self._delete(lambda position: True)

    def save(self, position: int, state: bytes) -> None:
        """Saves it. It is on the disk once this returns."""
        self._folder.replace(f"{position}{_STATE}", record(state))
        needed = self._needed()
        self._delete(lambda kept: kept < needed)

    def load(self, position: int) -> bytes | None:
        """The state; None if it is not there whole."""
        name = f"{position}{_STATE}"
        try:
            payloads = read_records(
                self._folder.read(name) or b"", self._folder.place(name)
            ).payloads
        except CannotResume:
            return None
        return payloads[0] if payloads else None

    def cut(self, position: int) -> None:
        """Deletes later states: a run that goes on at `position` may reach others."""
        self._delete(lambda kept: kept > position)

    def _delete(self, which: Callable[[int], bool]) -> None:
        for name in self._folder.names():
            if name.endswith(_STATE) and which(int(name.removesuffix(_STATE))):
                self._folder.remove(name)


EVERY_S = 1.0
"""Between two snapshots at least. Upstream keeps so long what came since."""
SHARE = 0.05
"""Of a pocket's time that snapshots may take at most."""


class Snapshots:
    """A restart begins at an input position for which the state was kept, and nowhere else."""

    def __init__(
        self, kept: KeptState, *, resume: bool, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`resume` means that the pocket has run before, and goes on with the state that was
        kept.
        """
        self._own: Mapping[str, Any] = {}
        self._kept = kept
        self._resume = resume
        self._now = now
        self.position = 0
        """Of the last input tuple that it has had when it begins."""
        self._due = 0.0

    @property
    def ended(self) -> bool:
        """Whether its results are all out, so that it needs no state any more."""
        return self.position == FOREVER

    def belong_to(self, pocket: type) -> None:
        """Takes the names of the module's classes, by which they are known."""
        module = sys.modules.get(pocket.__module__)
        self._own = vars(module) if module else {}

    def begin_after(self, position: int) -> None:
        self.position = position

    def found(self) -> Any | None:
        """The state after the position where it begins; None if it begins from the beginning.
        Raises TaskError if there was a state and it is gone.
        """
        if not self._resume:
            self._kept.forget()
            return None
        state = self._kept.load(self.position)
        if state is None:
            if not self.position:
                self._kept.forget()
                return None
            raise TaskError(
                f"its state after input tuple {self.position} is not in its site's state folder,"
                " so it would go on with an empty one",
                remedy="Drop the pocket and create it again, which starts it anew.",
            )
        self._kept.cut(self.position)
        self._wait(self._now())
        try:
            return unpacked(state, self._own)
        except Exception as error:
            raise TaskError(
                f"its state after input tuple {self.position} cannot be read:"
                f" {type(error).__name__}: {error}",
                remedy="Drop the pocket and create it again, which starts it anew.",
            ) from error

    def begun(self) -> None:
        """Takes note that this object runs: if it is opened again, it has run before."""
        self._resume = True

    def due(self) -> bool:
        return self._now() >= self._due

    def keep(self, position: int, state: Callable[[], object]) -> None:
        """Keeps the state. It is on the disk once this returns. Raises TaskError if `state` cannot
        be pickled, and StorageError if it cannot be written, which is tried again later.
        """
        started = self._now()
        try:
            data = packed(state(), self._own)
        except Exception as error:
            raise TaskError(
                f"its state cannot be kept: {_reason(error)}",
                remedy="Define snapshot() and restore(state), or say stateless = True if nothing"
                " that it gives depends on tuples before.",
            ) from error
        try:
            self._kept.save(position, data)
        finally:
            self._wait(started)

    def _wait(self, started: float) -> None:
        ended = self._now()
        self._due = ended + max(EVERY_S, (ended - started) / SHARE)


def _reason(error: Exception) -> str:
    text = (str(error).strip() or repr(error)).splitlines()[0]
    return f"{type(error).__name__}: {text}"
