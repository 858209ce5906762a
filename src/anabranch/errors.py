"""Every error Anabranch raises on purpose.

AnabranchError
├── ScriptError        the text of a statement is wrong; points at the place
├── ConfigError        cluster.toml or an option is wrong
├── SetupError         the machine lacks something: a JDK, a free port
├── PlacementError     nothing can be placed so that all conditions hold
├── SiteError          a site is unknown, unreachable or died
│   └── Refused        nobody listens there: its process has ended
├── StorageError       our own state folder cannot be written or read: disk full, I/O error
│   └── Damaged        a file there is not what was written
├── SourceError        a source cannot be read: missing file, malformed row
│   ├── SourceAway     the service that it reads from does not answer
│   └── CannotResume   it cannot be read again from where it was; says both positions
├── SinkError          a sink cannot write: no permission, a table that does not fit
│   ├── SinkAway       the service or disk that it writes to takes nothing for now
│   ├── SinkBehind     it holds less than it should; says both positions
│   └── Fenced         another incarnation of its query writes there
├── TaskError          a query failed while running
├── AdmissionError     a query asks for what cannot be promised
├── TooMany            somebody asks for more at once than a limit allows
└── ProtocolError      a peer or we broke the link protocol
    ├── StaleEpoch     the peer belongs to an earlier epoch and must stop
    └── Gap            tuples between two batches are missing

Each says by `passes` whether its cause may go by itself, so that whoever met it tries again: a
service that is away, a call that took too long, a full disk. All others are final: trying again
gives the same.

An error is one line: `place: message. remedy`. It crosses process borders as an ErrorReport, so a
user sees the same line wherever it was raised. No password that this process knows is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from anabranch.hidden import shown

_LONGEST = 1_000


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """An error in the form in which other processes get it. Only a ScriptError has an excerpt."""

    kind: str
    message: str
    place: str = ""
    remedy: str = ""
    excerpt: str | None = None

    def error(self) -> AnabranchError:
        """The error of this report; an unknown kind becomes the base class."""
        if self.kind == "ScriptError":
            return ScriptError(
                self.message, place=self.place, remedy=self.remedy, excerpt=self.excerpt or ""
            )
        kind = _KINDS.get(self.kind, AnabranchError)
        return kind(self.message, place=self.place, remedy=self.remedy)

    def line(self) -> str:
        return self.error().line()


class AnabranchError(Exception):
    """Base of all. `place` says where, `remedy` what to do about it."""

    passes: ClassVar[bool] = False
    """The cause may go by itself: whoever met it waits, visibly, and tries again."""

    def __init__(self, message: str, *, place: str = "", remedy: str = "") -> None:
        super().__init__(shown(message))
        self.message = shown(message)
        self.place = shown(place)
        self.remedy = shown(remedy)

    def line(self) -> str:
        """The line. A message that quotes a name of a thousand letters is cut."""
        message = self.message
        if len(message) > _LONGEST:
            message = f"{message[:_LONGEST]}…"
        text = f"{self.place}: {message}" if self.place else message
        if not self.remedy:
            return text
        return f"{text.rstrip('.')}. {self.remedy}"

    def __str__(self) -> str:
        return self.line()

    def report(self) -> ErrorReport:
        return ErrorReport(type(self).__name__, self.message, self.place, self.remedy)

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": type(self).__name__,
            "message": self.message,
            "place": self.place,
            "remedy": self.remedy,
        }


class ScriptError(AnabranchError):
    """`excerpt` holds the offending line of the script and an underline below it."""

    def __init__(
        self, message: str, *, place: str = "", remedy: str = "", excerpt: str = ""
    ) -> None:
        super().__init__(message, place=place, remedy=remedy)
        self.excerpt = excerpt

    def report(self) -> ErrorReport:
        return replace(super().report(), excerpt=self.excerpt)

    def to_dict(self) -> dict[str, object]:
        return super().to_dict() | {"excerpt": self.excerpt}


class ConfigError(AnabranchError):
    pass


class SetupError(AnabranchError):
    pass


class PlacementError(AnabranchError):
    pass


class SiteError(AnabranchError):
    passes = True


class Refused(SiteError):
    """Nobody listens at that address, or the connection was cut off there."""


class StorageError(AnabranchError):
    """State that was to be kept is not kept, so nothing that relies on it was told to anybody."""

    passes = True


class Damaged(StorageError):
    """Only a person can put it right."""

    passes = False


class SourceError(AnabranchError):
    pass


class SourceAway(SourceError):
    passes = True


class CannotResume(SourceError):
    """Going on would lose or repeat tuples, so nothing goes on until a person says how."""


class SinkError(AnabranchError):
    pass


class SinkAway(SinkError):
    """Nothing of the write is there; its rows are kept and written again."""

    passes = True


class SinkBehind(SinkError):
    """Acknowledged rows are missing: a replica without the last commits, or a restored backup.
    Going on would leave a gap, so a person decides.
    """

    lacks: tuple[int, int] = (0, 0)
    """The first and the last position of what is missing, where it is raised."""


class Fenced(SinkError):
    """A later incarnation of the query, or a successor, owns what is written to. This one stops."""


class TaskError(AnabranchError):
    pass


class AdmissionError(AnabranchError):
    pass


class TooMany(AnabranchError):
    passes = True


class ProtocolError(AnabranchError):
    pass


class StaleEpoch(ProtocolError):
    pass


class Superseded(ProtocolError):
    """Another site runs this task now. A site that gets this for a task of its own stops it."""


class Gap(ProtocolError):
    pass


_KINDS: dict[str, type[AnabranchError]] = {
    kind.__name__: kind
    for kind in (
        AnabranchError,
        ConfigError,
        SetupError,
        PlacementError,
        SiteError,
        Refused,
        StorageError,
        Damaged,
        SourceError,
        SourceAway,
        CannotResume,
        SinkError,
        SinkAway,
        SinkBehind,
        Fenced,
        TaskError,
        AdmissionError,
        TooMany,
        ProtocolError,
        StaleEpoch,
        Superseded,
        Gap,
    )
}


def from_dict(data: dict[str, object]) -> AnabranchError:
    """The error that `to_dict` described; an unknown kind becomes the base class."""
    texts = {key: str(data.get(key, "")) for key in ("message", "place", "remedy")}
    message = texts.pop("message")
    if data.get("kind") == "ScriptError":
        return ScriptError(message, excerpt=str(data.get("excerpt", "")), **texts)
    return _KINDS.get(str(data.get("kind")), AnabranchError)(message, **texts)
