"""Script text → tokens, through sqlglot's Spark tokenizer.

sqlglot decides where a token starts and ends, because the same tokens go to its expression parser.
What kind of token it is, for the statement grammar, is decided here from the text: sqlglot's own
types see keywords of other statements (`Temp` is TEMPORARY) and casts in durations (`1s`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby, pairwise
from typing import ClassVar

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as SqlToken
from sqlglot.tokenizer_core import TokenType

from anabranch.errors import ScriptError
from anabranch.language.source import Script, Span


class TokenKind(Enum):
    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True)
class Token:
    """`text` is the content of a quoted name or string, else the source text with single spaces.

    `sql` holds what sqlglot made of it, one token or, for numbers such as `1s`, three.
    """

    kind: TokenKind
    text: str
    span: Span = field(compare=False)
    sql: tuple[SqlToken, ...] = field(default=(), compare=False, repr=False)

    @property
    def key(self) -> str:
        """What grammar rules compare with: the word in capitals or the symbol, else nothing."""
        return self.text.upper() if self.kind in (TokenKind.WORD, TokenKind.SYMBOL) else ""

    @property
    def is_name(self) -> bool:
        return self.kind in (TokenKind.WORD, TokenKind.QUOTED)


class _Tokenizer(Spark.Tokenizer):
    # sqlglot takes the rest of a statement such as SHOW or EXPLAIN for one opaque string.
    COMMANDS: ClassVar[set[TokenType]] = set()


_DIALECT = Spark()
_STRINGS = {
    TokenType.STRING,
    TokenType.RAW_STRING,
    TokenType.NATIONAL_STRING,
}
_WORD = re.compile(r"[^\W\d]\w*(?:\s+[^\W\d]\w*)*")


MOST_TOKENS = 20_000
"""Of a statement: 4,000 columns and more. Checking it takes some milliseconds a column."""
MOST_CHARACTERS = 4_000_000
"""Of a script."""


def tokenize(script: Script) -> list[Token]:
    """The tokens of `script` without comments and hints, an END token last."""
    if len(script.text) > MOST_CHARACTERS:
        message = (
            f"the script has {len(script.text):,} characters, and may have {MOST_CHARACTERS:,}"
        )
        raise script.error(Span(0, 0), message, "Split it into several scripts.")
    try:
        pieces = _Tokenizer(dialect=_DIALECT).tokenize(script.text)
    except TokenError as error:
        raise _lexical_error(script, error) from None
    pieces = [token for token in pieces if token.token_type is not TokenType.HINT]
    tokens = [
        _token(script, Span(start, end + 1), tuple(group))
        for (start, end), group in groupby(pieces, lambda token: (token.start, token.end))
    ]
    _check_sizes(script, tokens)
    end = tokens[-1].span.end if tokens else len(script.text)
    return [*tokens, Token(TokenKind.END, "", Span(end, end))]


def _check_sizes(script: Script, tokens: Sequence[Token]) -> None:
    ends = [index for index, token in enumerate(tokens) if token.key == ";"]
    for start, end in pairwise([-1, *ends, len(tokens)]):
        count = end - start - 1
        if count > MOST_TOKENS:
            span = tokens[start + 1].span.to(tokens[start + min(2, count)].span)
            message = f"this statement has {count:,} words and signs, and may have {MOST_TOKENS:,}"
            remedy = (
                "Declare the columns that are needed, or keep them in one of type MAP or ARRAY."
            )
            raise script.error(span, message, remedy)


def _token(script: Script, span: Span, pieces: tuple[SqlToken, ...]) -> Token:
    source = script.slice(span)
    if pieces[0].token_type in _STRINGS:
        return Token(TokenKind.STRING, pieces[0].text, span, pieces)
    if source.startswith("`"):
        return Token(TokenKind.QUOTED, pieces[0].text, span, pieces)
    if source[:1].isdigit():
        return Token(TokenKind.NUMBER, source, span, pieces)
    kind = TokenKind.WORD if _WORD.fullmatch(source) else TokenKind.SYMBOL
    return Token(kind, " ".join(source.split()), span, pieces)


def collapsed(script: Script, tokens: Iterable[Token]) -> str:
    """The text of `tokens` with one space for each stretch of white space and comments."""
    text, end = "", None
    for token in tokens:
        text += " " if end is not None and token.span.start > end else ""
        text += script.slice(token.span)
        end = token.span.end
    return text


_OPENING = re.compile(r"""--[^\r\n]*|/\*|[rR]?['"]|[xX]'|`""")
_CLOSING = {
    "'": re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL),
    '"': re.compile(r'(?:[^"\\]|\\.)*"', re.DOTALL),
    "r'": re.compile(r"[^']*'"),
    'r"': re.compile(r'[^"]*"'),
    "x'": re.compile(r"[^']*'"),
    "`": re.compile(r"[^`]*`"),
}
_COMMENT_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True)
class _Enclosed:
    """A string, quoted name or comment: `;` means nothing inside it."""

    opening: str
    span: Span
    closed: bool

    @property
    def is_comment(self) -> bool:
        return self.opening in ("--", "/*")


def is_complete(text: str) -> bool:
    """Whether `text` ends with a `;` that is not part of a string, quoted name or comment."""
    rest, at = "", 0
    for part in _enclosed(text):
        if not part.closed:
            return False
        rest += text[at : part.span.start] + ("" if part.is_comment else "_")
        at = part.span.end
    return (rest + text[at:]).rstrip().endswith(";")


def _enclosed(text: str) -> Iterator[_Enclosed]:
    at = 0
    while match := _OPENING.search(text, at):
        start = match.start()
        opening = match[0][:2] if match[0].startswith("--") else match[0].lower()
        if len(opening) == 2 and opening[0] in "rx" and text[start - 1 : start].isalnum():
            # The letter ends a word, so the quote after it opens an ordinary string.
            start, opening = start + 1, opening[1]
        end = _end_of(text, opening, match)
        at = len(text) if end is None else end
        yield _Enclosed(opening, Span(start, at), end is not None)


def _end_of(text: str, opening: str, match: re.Match[str]) -> int | None:
    if opening == "--":
        return match.end()
    if opening == "/*":
        return _end_of_comment(text, match.end())
    closing = _CLOSING[opening].match(text, match.end())
    return closing.end() if closing else None


def _end_of_comment(text: str, at: int) -> int | None:
    """The index just after the comment, if it is closed. Comments nest, as they do in Spark."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge[0] == "/*" else -1
        if not depth:
            return edge.end()
    return None


_UNCLOSED = {
    "/*": ("this comment is never closed", "End it with */."),
    "`": ("this quoted name is never closed", "End it with `."),
}


def _lexical_error(script: Script, error: TokenError) -> ScriptError:
    for part in _enclosed(script.text):
        if not part.closed:
            message, remedy = _UNCLOSED.get(
                part.opening, ("this string is never closed", f"End it with {part.opening[-1]}.")
            )
            return script.error(part.span, message, remedy)
        if part.opening == "x'" and not re.fullmatch("..[0-9A-Fa-f]*.", script.slice(part.span)):
            return script.error(part.span, "a hexadecimal string holds only 0-9 and A-F")
    return script.error(Span(error.start or 0, error.end or 0), "this text cannot be read")
