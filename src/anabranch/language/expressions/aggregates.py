"""Aggregate functions: which there are, and where an expression calls one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.errors import ScriptError
from anabranch.language.expressions.functions import CheckAggregate
from anabranch.language.grammar.lexer import Token
from anabranch.language.source import Script, Span
from anabranch.language.wording import listed

SUPPORTED = {
    name: name
    for name in (
        "SUM", "COUNT", "AVG", "MIN", "MAX", "VAR_SAMP", "VAR_POP", "STDDEV_SAMP", "STDDEV_POP",
    )
} | {
    "MEAN": "AVG", "VAR": "VAR_SAMP", "VARIANCE": "VAR_SAMP", "STD": "STDDEV_SAMP",
    "STDDEV": "STDDEV_SAMP",
}  # fmt: skip
"""From what may be written to what the plan calls it."""
_OTHERS = frozenset({
    "ANY", "ANY_VALUE", "APPROX_COUNT_DISTINCT", "APPROX_PERCENTILE", "APPROX_TOP_K", "ARRAY_AGG",
    "BITMAP_CONSTRUCT_AGG", "BITMAP_OR_AGG", "BIT_AND", "BIT_OR", "BIT_XOR", "BOOL_AND",
    "BOOL_OR", "COLLECT_LIST", "COLLECT_SET", "CORR", "COUNT_IF", "COUNT_MIN_SKETCH",
    "COVAR_POP", "COVAR_SAMP", "EVERY", "FIRST", "FIRST_VALUE",
    "GROUPING", "GROUPING_ID", "HISTOGRAM_NUMERIC", "HLL_SKETCH_AGG", "HLL_UNION_AGG", "KURTOSIS",
    "LAST", "LAST_VALUE", "LISTAGG", "MAX_BY", "MEDIAN",
    "MIN_BY", "MODE", "PERCENTILE", "PERCENTILE_APPROX", "PERCENTILE_CONT",
    "PERCENTILE_DISC", "REGR_AVGX", "REGR_AVGY", "REGR_COUNT",
    "REGR_INTERCEPT", "REGR_R2", "REGR_SLOPE", "REGR_SXX", "REGR_SXY", "REGR_SYY",
    "SKEWNESS", "SOME", "STRING_AGG", "TRY_AVG", "TRY_SUM",
})  # fmt: skip
"""Aggregates of Spark's that windows do not know."""

IsOwn = Callable[[str], bool]
"""Whether a user's aggregate has this name."""


def refused(script: Script, is_own: IsOwn, message: str, remedy: str) -> CheckAggregate:
    """The check for expressions in which no aggregate may be called."""

    def check(token: Token) -> ScriptError | None:
        name = token.text.upper()
        if name in SUPPORTED or name in _OTHERS or is_own(token.text):
            return script.error(token.span, message, remedy)
        return None

    return check


def supported(script: Script, is_own: IsOwn) -> CheckAggregate:
    """The check for expressions over windows, in which aggregates may be called."""

    def check(token: Token) -> ScriptError | None:
        if token.text.upper() not in _OTHERS or is_own(token.text):
            return None
        remedy = f"There are {listed(list(dict.fromkeys(SUPPORTED.values())), 'and')}"
        return script.error(
            token.span,
            f"{token.text} is not supported in windows",
            f"{remedy}; CREATE AGGREGATE makes others.",
        )

    return check


@dataclass(frozen=True)
class FoundCall:
    """A call `name(inner)` in the text."""

    name: Token
    inner: tuple[Token, ...]
    last: Token
    """The closing bracket."""

    @property
    def span(self) -> Span:
        return self.name.span.to(self.last.span)

    def arguments(self) -> list[tuple[Token, ...]]:
        """The parts that commas separate, without DISTINCT."""
        tokens = self.inner[1:] if self.distinct else self.inner
        parts: list[list[Token]] = [[]]
        depth = 0
        for token in tokens:
            depth += (token.key in ("(", "[")) - (token.key in (")", "]"))
            if token.key == "," and not depth:
                parts.append([])
            else:
                parts[-1].append(token)
        return [tuple(part) for part in parts if part]

    @property
    def distinct(self) -> bool:
        return bool(self.inner) and self.inner[0].key == "DISTINCT"


def find_calls(tokens: Sequence[Token], is_own: IsOwn) -> list[FoundCall]:
    """The outermost calls of aggregates in `tokens`, whose brackets match."""
    found: list[FoundCall] = []
    index = 0
    while index < len(tokens) - 1:
        token = tokens[index]
        index += 1
        if tokens[index].key != "(" or not token.is_name:
            continue
        if token.text.upper() in SUPPORTED or is_own(token.text):
            last = _closing(tokens, index)
            found.append(FoundCall(token, tuple(tokens[index + 1 : last]), tokens[last]))
            index = last + 1
    return found


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += (tokens[index].key == "(") - (tokens[index].key == ")")
        if not depth:
            return index
    raise AssertionError("the parser saw to it that brackets match")
