"""The cursor that grammar productions move over the tokens of a script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from anabranch.errors import ConfigError, ScriptError
from anabranch.language.grammar.lexer import Token, TokenKind, collapsed, tokenize
from anabranch.language.grammar.statements import Duration, Name
from anabranch.language.source import Script, Span, clip, did_you_mean_keyword, either
from anabranch.units import duration_us

RESERVED = frozenset({"AND", "AS", "CREATE", "FROM", "INTO", "NOT", "OR", "SELECT", "WHERE"})
"""Words that are names only in back quotes, so that a forgotten name is noticed where it lacks."""


class Cursor:
    """A position in the tokens of `script`. It never moves past the END token."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._tokens = tokenize(script)
        self._index = 0

    def peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._index + ahead, len(self._tokens) - 1)]

    @property
    def previous(self) -> Token:
        """The token passed last. There must be one."""
        return self._tokens[self._index - 1]

    def at(self, *keys: str) -> bool:
        """Whether the next token is one of these keywords or symbols."""
        return self.peek().key in keys

    def at_end(self) -> bool:
        """Whether the statement ends here."""
        return self.peek().kind is TokenKind.END or self.at(";")

    def advance(self) -> Token:
        token = self.peek()
        self._index = min(self._index + 1, len(self._tokens) - 1)
        return token

    def accept(self, *keys: str) -> Token | None:
        return self.advance() if self.at(*keys) else None

    def expect(self, *keys: str) -> Token:
        if not self.at(*keys):
            raise self.unexpected(keys)
        return self.advance()

    def name(self, what: str) -> Name:
        """A word or `back quoted` name; `what` describes it in the error."""
        name = self.as_name(self.peek(), what)
        self.advance()
        return name

    def as_name(self, token: Token, what: str) -> Name:
        """The name that `token` is. Raises if it cannot be one."""
        if not token.is_name or " " in token.key or token.key in RESERVED:
            error = self.unexpected((what,), token)
            if token.kind is TokenKind.STRING:
                error.remedy = "A name takes `back quotes` or none."
            raise error
        if not token.text.strip():
            raise self.error(token.span, "a name cannot be empty")
        return Name(token.text, token.span)

    def duration(self) -> Duration:
        """A duration such as `500ms` or `10 s`."""
        if self.peek().kind is not TokenKind.NUMBER:
            raise self.unexpected(("a duration such as 500ms",))
        duration = self.accept_duration()
        if duration is None:
            raise self._not_a_duration(self.peek())
        return duration

    def unit_or_duration(self) -> Duration:
        """A duration such as `10ms`, or a unit alone, such as `s`, for one of it."""
        token = self.peek()
        if token.kind is not TokenKind.WORD:
            return self.duration()
        us = _microseconds(f"1{token.text}")
        if us is None:
            raise self.unexpected(("a unit of time such as s", "a duration such as 10ms"))
        self.advance()
        return Duration(us, token.text, token.span)

    def accept_duration(self) -> Duration | None:
        """The duration that the next token, or the next two, make."""
        first = self.peek()
        for count in (1, 2):
            text = "".join(self.peek(ahead).text for ahead in range(count))
            if first.kind is TokenKind.NUMBER and (us := _microseconds(text)) is not None:
                for _ in range(count):
                    self.advance()
                return Duration(us, text, self.since(first))
        return None

    def mark(self) -> int:
        """This position, which `collapsed_since` takes."""
        return self._index

    def collapsed_since(self, mark: int) -> str:
        """The text passed since `mark`, without comments and with single spaces."""
        return collapsed(self.script, self._tokens[mark : self._index])

    def since(self, start: Token) -> Span:
        """The span from `start` to the token passed last."""
        return start.span.to(self.previous.span)

    def error(self, span: Span, message: str, remedy: str = "") -> ScriptError:
        return self.script.error(span, message, remedy)

    def unexpected(
        self, expected: Sequence[str], token: Token | None = None, remedy: str = ""
    ) -> ScriptError:
        """The error that `token`, by default the next one, is none of `expected`."""
        token = token or self.peek()
        keywords = [text for text in expected if text.isupper()]
        if not remedy and token.kind is TokenKind.WORD:
            remedy = did_you_mean_keyword(token.text, keywords)
        remedy = self._quotes_for_hyphens(token) or remedy
        shown = self.show(token)
        return self.error(token.span, f"expected {either(expected)} but found {shown}", remedy)

    def show(self, token: Token) -> str:
        if token.kind is TokenKind.END:
            return "the end of the script"
        source = clip(self.script.shown(token.span))
        return source if token.kind in (TokenKind.STRING, TokenKind.QUOTED) else f"'{source}'"

    def _quotes_for_hyphens(self, token: Token) -> str:
        """A remedy if `token` is the hyphen in what was meant as one name, as in `AT room-1`."""
        word = re.search(r"(?<!\w)[^\W\d]\w*$", self.script.text[: token.span.start])
        if token.key != "-" or word is None:
            return ""
        meant = re.findall(r"[\w-]+", self.script.text[word.start() :])[0]
        return f"A name with a hyphen takes back quotes: `{meant}`."

    def _not_a_duration(self, token: Token) -> ScriptError:
        try:
            with suppress(OverflowError):
                duration_us(token.text)
        except ConfigError as error:
            message = error.message.replace(repr(token.text), self.show(token))
            return self.error(token.span, message, error.remedy)
        return self.error(token.span, f"the duration {self.show(token)} is too long")


def _microseconds(text: str) -> int | None:
    try:
        us = duration_us(text)
    except (ConfigError, OverflowError):
        return None
    return us if us < 2**63 else None
