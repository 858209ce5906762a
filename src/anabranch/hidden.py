"""Finds passwords in texts, and masks those that this process knows.

All texts that this process shows to people go through here: a statement's text without the
passwords that are written in it, an error without those in its options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MASK = "***"
_SHORTEST = 4
"""A shorter value is in too many words to be left out of them."""
_known: dict[str, str] = {}
"""Value → what is shown instead."""

_WORDS = (
    r"(?:passw(?:or)?d|passphrase|pwd|secret|token|credentials?|jaas\.config|ssl\.key\.pem"
    r"|(?:api|access|private|secret)[_.-]?key|account[_.-]?key(?:\.[\w.-]+)?)"
)
_OPTION = re.compile(rf"{_WORDS}$", re.IGNORECASE)
_IN_URL = re.compile(r"://[^\s'\"/?#@:]*:([^\s'\"]+)@")
_IN_TEXT = re.compile(rf"(?i){_WORDS}\s*+=\s*+[\"']?([^\s&;\"']+)")
_CREATED = re.compile(r"(?i)\bSECRET\s++\S++\s++(?:AS\s*+)?+'(?P<secret>[^']*+)")
_LITERAL = r"'(?:[^'\\]|\\.|'')*'?|\"(?:[^\"\\]|\\.|\"\")*\"?"
_TEXT = re.compile(
    rf"""(?isx)
    (?P<comment> --[^\n]* | /\*.*?(?:\*/|\Z) )
    | \b SECRET \s++ (?:`[^`]*`|[\w-]+) (?:\s++(?:AS|FROM|=))?+ \s*+ (?P<secret> {_LITERAL})
    | {_WORDS}`?+ \s*+ (?: =?+ \s*+ (?P<password> {_LITERAL}) | = \s*+ (?P<number> \d[\w.]*) )
    | (?P<literal> {_LITERAL} )
    """
)


def names_password(option: str) -> bool:
    """Whether the value of an option of this name is secret."""
    return _OPTION.search(option) is not None


def passwords_in(text: str) -> list[tuple[int, int]]:
    """The places of passwords in a URL, or in settings such as `user=a password=b`."""
    spans = {one.span(1) for one in (*_IN_URL.finditer(text), *_IN_TEXT.finditer(text))}
    return _apart(spans)


def passwords_in_script(text: str) -> list[tuple[int, int]]:
    """Their places in statements, which need not be correct, without the quotes around them."""
    return _apart(set(_in_script(text)))


def masked(text: str) -> str:
    """A value of an option, without the passwords in it."""
    return without(text, passwords_in(text))


def without(text: str, spans: list[tuple[int, int]], first: int = 0, end: int | None = None) -> str:
    """`text` from `first` to `end`, with a mask for the parts of the spans in it."""
    end = len(text) if end is None else end
    parts, at = [], first
    for begins, ends in spans:
        if begins < end and ends > at:
            parts += [text[at : max(at, begins)], MASK]
            at = min(ends, end)
    return "".join((*parts, text[at:end]))


def hide(value: str, shown: str) -> None:
    """From now on `shown` replaces `value`, and the passwords in it, in all texts for people."""
    lines = [line for line in value.splitlines() if len(line) > 15 and not line.startswith("--")]
    for part in (value, *(value[first:end] for first, end in passwords_in(value)), *lines):
        for spelling in (part, repr(part)[1:-1]):
            if len(spelling) >= _SHORTEST:
                _known[spelling] = shown


def shown(text: str) -> str:
    """The text as people get to see it."""
    for value in sorted(_known, key=len, reverse=True):
        if value in text:
            text = text.replace(value, _known[value])
    return text


def _in_script(text: str) -> Iterator[tuple[int, int]]:
    for match in _TEXT.finditer(text):
        kind = match.lastgroup or ""
        first, end = match.span(kind)
        if kind in ("secret", "password"):
            closed = end > first + 1 and text[end - 1] == text[first]
            yield first + 1, end - closed
        elif kind == "number":
            yield first, end
        elif kind == "literal":
            yield from ((first + a, first + b) for a, b in passwords_in(text[first:end]))
        else:  # what is written in a comment may have been a statement
            yield from ((first + a, first + b) for a, b in passwords_in(text[first:end]))
            yield from (found.span("secret") for found in _CREATED.finditer(text, first, end))


def _apart(spans: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans in order; those that overlap are joined."""
    spans_: list[tuple[int, int]] = []
    for first, end in sorted(spans):
        if spans_ and first < spans_[-1][1]:
            spans_[-1] = (spans_[-1][0], max(end, spans_[-1][1]))
        else:
            spans_.append((first, end))
    return spans_
