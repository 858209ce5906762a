"""How error messages name things."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

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
    found = closest(word, keywords)
    return f"Did you mean {found}?" if found and found != word.upper() else ""


def did_you_mean_name(word: str, names: Iterable[str]) -> str:
    found = closest(word, names)
    return f"Did you mean '{found}'?" if found else ""
