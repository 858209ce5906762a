"""Collects statements that are carried out together, so that no tuple flows before all are
there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from anabranch.api.text import Text
from anabranch.errors import ConfigError, ScriptError
from anabranch.plan.program import Submission

_PLACE = re.compile(r"(.*):(\d+):(\d+)", re.DOTALL)


class Gathered:
    """The statements that `with cluster.script():` has collected so far."""

    def __init__(self) -> None:
        self._statements: list[Text] = []
        self._readers: dict[str, str] = {}
        self._pockets: list[Submission] = []
        self._pocket_readers: list[str] = []
        self._after: list[Callable[[], None]] = []

    def statement(self, text: Text, readers: Mapping[str, str], after: Callable[[], None]) -> None:
        """Adds a statement. `after` is called once it is carried out."""
        text.checked()
        self._statements.append(text)
        self._readers |= readers
        self._after.append(after)

    def pocket(self, submitted: Submission, reader: str, after: Callable[[], None]) -> None:
        self._pockets.append(submitted)
        self._pocket_readers.append(reader)
        self._after.append(after)

    @property
    def text(self) -> str:
        """The script that all statements make up."""
        return ";\n".join(str(one) for one in self._statements)

    @property
    def readers(self) -> Mapping[str, str]:
        """Maps each query to the reader that will follow it."""
        return self._readers

    @property
    def pockets(self) -> list[tuple[Submission, str]]:
        """The pockets, each with the reader that will follow its output, if any."""
        return list(zip(self._pockets, self._pocket_readers, strict=True))

    @property
    def is_empty(self) -> bool:
        return not self._after

    def begin(self) -> None:
        """Starts the readers, once all of it has been carried out."""
        for after in self._after:
            after()

    def blamed(self, error: ScriptError) -> ScriptError:
        """Turns the error of the whole script into one about the argument that it concerns."""
        match = _PLACE.fullmatch(error.place)
        if match is None:
            return error
        line = int(match[2])
        for text in self._statements:
            lines = str(text).count("\n") + 1
            if line <= lines:
                at = f"{match[1]}:{line}:{match[3]}"
                return text.blamed(
                    ScriptError(error.message, place=at, remedy=error.remedy, excerpt=error.excerpt)
                )
            line -= lines
        return error


def not_yet(what: str) -> ConfigError:
    return ConfigError(
        f"{what} does not run yet", remedy="Read its results after the `with cluster.script():`."
    )
