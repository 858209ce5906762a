"""A script's text, places in it, and how error messages name things."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

from anabranch.errors import ScriptError
from anabranch.hidden import passwords_in_script, without

_LONGEST_EXCERPT = 400
"""Characters; of longer lines a part is shown."""


@dataclass(frozen=True, slots=True)
class Span:
    """The characters `start` up to, but not including, `end`."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of `other`."""
        return Span(self.start, max(self.end, other.end))

    def holds(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True)
class Script:
    """The text of one or more statements; `name` is what errors call it."""

    text: str
    name: str = "script"

    def slice(self, span: Span) -> str:
        return self.text[span.start : span.end]

    @cached_property
    def passwords(self) -> list[tuple[int, int]]:
        """The places of the passwords that are written in it."""
        return passwords_in_script(self.text)

    def shown(self, span: Span | None = None) -> str:
        """The text of `span` as people get to see it: without passwords."""
        first, end = (span.start, span.end) if span else (0, len(self.text))
        return without(self.text, self.passwords, first, end)

    def line_and_column(self, offset: int) -> tuple[int, int]:
        """The line and the column, both counted from 1; a column is a character, whatever its
        width.
        """
        return self.text.count("\n", 0, offset) + 1, offset - self._line_start(offset) + 1

    def place(self, span: Span) -> str:
        line, column = self.line_and_column(span.start)
        return f"{self.name}:{line}:{column}"

    def excerpt(self, span: Span) -> str:
        """The line on which `span` starts, and below it an underline of at least one `^`.

        A span over several lines is underlined to the end of its first.
        """
        start = self._line_start(span.start)
        newline = self.text.find("\n", span.start)
        end = newline if newline >= 0 else len(self.text)
        before = self.shown(Span(start, span.start))
        marked = self.shown(Span(span.start, min(span.end, end)))
        rest = self.shown(Span(min(span.end, end), end))
        line, at = _clipped(f"{before}{marked}{rest}".rstrip(), len(before))
        before, marked = line[:at], line[at : at + len(marked)]
        return f"{_printable(line)}\n{_blank(before)}{'^' * max(1, _width(marked))}"

    def error(self, span: Span, message: str, remedy: str = "") -> ScriptError:
        return ScriptError(
            message, place=self.place(span), remedy=remedy, excerpt=self.excerpt(span)
        )

    def _line_start(self, offset: int) -> int:
        return self.text.rfind("\n", 0, offset) + 1


def _clipped(line: str, at: int) -> tuple[str, int]:
    """The part of a very long line around the place `at`, and where `at` is within that part."""
    if len(line) <= _LONGEST_EXCERPT:
        return line, at
    first = max(0, at - _LONGEST_EXCERPT // 4)
    part = line[first : first + _LONGEST_EXCERPT]
    before = "…" if first else ""
    after = "…" if first + len(part) < len(line) else ""
    return f"{before}{part}{after}", at - first + len(before)


def _printable(text: str) -> str:
    """`text` without characters that would move a terminal's cursor."""
    return "".join(char if char.isprintable() or char == "\t" else "·" for char in text)


def _blank(text: str) -> str:
    """Space as wide as `text`; tabs stay tabs, since their width is the terminal's choice."""
    return "".join("\t" if char == "\t" else " " * _width(char) for char in text)


def _width(text: str) -> int:
    """The number of terminal columns that `text` takes."""
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


_LONGEST = 40


def clip(text: str) -> str:
    """`text` on one line, of at most 40 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def either(expected: Sequence[str]) -> str:
    """`A, B or C`; symbols get quotes, words in capitals and descriptions stay as they are."""
    return listed([text if text[:1].isalpha() else f"'{text}'" for text in expected], "or")


def listed(texts: Sequence[str], word: str) -> str:
    """`A, B or C`, where `word` is "or"."""
    return f" {word} ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def closest(word: str, candidates: Iterable[str], cutoff: float = 0.65) -> str | None:
    """The candidate that `word` is most likely a misspelling of, whatever the case."""
    if len(word) < 2:
        return None
    spelling = {candidate.lower(): candidate for candidate in candidates}
    matches = get_close_matches(word.lower(), spelling, n=1, cutoff=cutoff)
    return spelling[matches[0]] if matches else None


def did_you_mean_keyword(word: str, keywords: Iterable[str]) -> str:
    nearest = closest(word, keywords)
    return f"Did you mean {nearest}?" if nearest and nearest != word.upper() else ""


def did_you_mean_name(word: str, names: Iterable[str]) -> str:
    nearest = closest(word, names)
    return f"Did you mean '{nearest}'?" if nearest else ""
