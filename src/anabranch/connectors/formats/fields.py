"""Finds the wanted fields among those of a source; names match whatever their case."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import SourceError
from anabranch.language.wording import clip

_MANY = 20


def _listed(names: Sequence[str]) -> str:
    """The names for a message, cut short: a file of another kind may have anything in their
    place.
    """
    shown = ", ".join(clip(name) for name in names[:_MANY])
    more = f" and {len(names) - _MANY} more" if len(names) > _MANY else ""
    return shown + more or "no column"


def locate(
    wanted: Sequence[str], present: Sequence[str], timestamp: str | None, place: str
) -> list[int]:
    """The index in `present` of each wanted name; an exact match goes before one in other case.
    SourceError says what is missing at `place` and what exists instead.
    """
    return [_index(name, present, name == timestamp, place) for name in wanted]


def _index(name: str, present: Sequence[str], is_time: bool, place: str) -> int:
    if name in present:
        return present.index(name)
    lowered = [field.strip().lower() for field in present]
    if name.lower() in lowered:
        return lowered.index(name.lower())
    what = f"the event time {name}" if is_time else f"the column {name}"
    raise SourceError(
        f"{what} is missing; there is {_listed(present)}",
        place=place,
        remedy="Name it in CREATE STREAM as it is named there.",
    )
