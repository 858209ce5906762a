"""Aggregate functions: which there are, where an expression calls one, its arguments, and the
type of what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from anabranch.errors import ScriptError
from anabranch.language.expressions.functions import CheckAggregate
from anabranch.language.expressions.scope import Placed, expr
from anabranch.language.expressions.types import UNKNOWN, Asked
from anabranch.language.grammar import translations
from anabranch.language.grammar.lexer import Token
from anabranch.language.source import Script, Span, listed
from anabranch.plan.catalog import AggregateDef
from anabranch.plan.expressions import Expr, Use
from anabranch.plan.operators import AggregateCall, Call

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
    calls: list[FoundCall] = []
    index = 0
    while index < len(tokens) - 1:
        token = tokens[index]
        index += 1
        if tokens[index].key != "(" or not token.is_name:
            continue
        if token.text.upper() in SUPPORTED or is_own(token.text):
            last = _closing(tokens, index)
            calls.append(FoundCall(token, tuple(tokens[index + 1 : last]), tokens[last]))
            index = last + 1
    return calls


def _closing(tokens: Sequence[Token], opening: int) -> int:
    depth = 0
    for index in range(opening, len(tokens)):
        depth += (tokens[index].key == "(") - (tokens[index].key == ")")
        if not depth:
            return index
    raise AssertionError("the parser saw to it that brackets match")


_WIDER = ("tinyint", "smallint", "int", "bigint", "float", "double")
"""A number of one of these types can be taken for one of a later type."""
_OF_NUMBERS = frozenset({"SUM", "AVG", "VAR_SAMP", "VAR_POP", "STDDEV_SAMP", "STDDEV_POP"})


@dataclass(frozen=True)
class BoundCall:
    """A call whose types are not known yet. Two calls are equal if they compute the same."""

    function: str
    arguments: tuple[Expr, ...]
    distinct: bool
    own: AggregateDef | None = field(hash=False)


def bind_call(
    script: Script, call: FoundCall, own: AggregateDef | None, is_own: IsOwn, refs: Sequence[Placed]
) -> BoundCall:
    """The call in `call` with its columns; `refs` are the columns in it."""
    if inner := find_calls(call.inner, is_own):
        raise script.error(
            inner[0].name.span,
            "an aggregate cannot stand in another",
            "Make the inner one a query of its own and aggregate that.",
        )
    function = own.name if own else SUPPORTED[call.name.text.upper()]
    if call.distinct and function != "COUNT":
        message = f"DISTINCT is for COUNT, not for {function}"
        alike = function in ("MIN", "MAX")
        remedy = "Leave it out: the result is the same." if alike else translations.DISTINCT_IN
        raise script.error(call.inner[0].span, message, remedy)
    arguments = call.arguments()
    if function == "COUNT" and [[token.key for token in one] for one in arguments] == [["*"]]:
        return BoundCall(function, (), False, None)
    if error := _miscounted(script, call, len(arguments), own):
        raise error
    bound = tuple(expr(script, one, refs) for one in arguments)
    return BoundCall(function, bound, call.distinct, own)


def _miscounted(
    script: Script, call: FoundCall, given: int, own: AggregateDef | None
) -> ScriptError | None:
    needed = len(own.arguments) if own else max(1, given) if call.distinct else 1
    if given == needed:
        return None
    arguments = "one argument" if needed == 1 else f"{needed} arguments"
    message = f"{call.name.text} takes {arguments}, here are {given or 'none'}"
    return script.error(call.span, message)


def asked(call: BoundCall, span: Span) -> list[Asked]:
    """The questions about types in `call`: first the types of its arguments where they matter, last
    the type of its result unless that is declared.
    """
    arguments = [Asked(argument, span) for argument in call.arguments]
    if call.own:
        return arguments
    before = f"{call.function}({'DISTINCT ' if call.distinct else ''}"
    result = Asked(_joined(call.arguments), span, before=before, after=")")
    return [*arguments, result] if call.function in _OF_NUMBERS else [result]


def _joined(arguments: Sequence[Expr]) -> Expr:
    """`a, b`; `*` if there are no arguments."""
    pieces, uses = [""], list[Use]()
    for index, argument in enumerate(arguments):
        pieces[-1] += (", " if index else "") + argument.pieces[0]
        pieces += argument.pieces[1:]
        uses += argument.uses
    return Expr(pieces=tuple(pieces), uses=tuple(uses)) if arguments else Expr(pieces=("*",))


def typed(
    script: Script, call: BoundCall, span: Span, name: str, types: Sequence[str]
) -> AggregateCall:
    """The call with its types; `types` are the answers to what `asked` returned."""
    if call.own is None:
        if len(types) > 1:
            _check_number(script, call, span, types[0])
        if call.function in ("MIN", "MAX"):
            _check_order(script, call, span, types[-1])
        return AggregateCall(
            function=call.function,
            arguments=call.arguments,
            distinct=call.distinct,
            name=name,
            type=types[-1],
        )
    arguments = zip(call.arguments, types, call.own.arguments, strict=True)
    source = call.own.source
    return AggregateCall(
        function=call.function,
        arguments=tuple(_fitted(script, call, span, *argument) for argument in arguments),
        name=name,
        type=call.own.type,
        source=Call(name=source.name, options={**source.options, "base": call.own.base}),
    )


def _check_order(script: Script, call: BoundCall, span: Span, given: str) -> None:
    """Raises unless the values are plain: windows keep the least or greatest of plain values
    only.
    """
    if given.lower().startswith(("struct", "array", "map", "variant")):
        raise script.error(
            span,
            f"{call.function} of a value of several parts ({given.upper()}) is not supported in"
            " windows",
            "Make such a function with CREATE AGGREGATE, which takes several arguments.",
        )


def _check_number(script: Script, call: BoundCall, span: Span, given: str) -> None:
    """Raises if an argument is no number. Spark would take text, and fail on the first text that is
    none.
    """
    if given.lower() not in (*_WIDER, UNKNOWN) and not given.lower().startswith("decimal"):
        (argument,) = call.arguments
        raise script.error(
            span,
            f"{call.function} takes a number, but {argument} is {given.upper()}",
            f"Write {call.function}(CAST({argument} AS DOUBLE)) if it holds one.",
        )


def _fitted(
    script: Script, call: BoundCall, span: Span, argument: Expr, given: str, wanted: str
) -> Expr:
    """`argument` as the type that a user's aggregate wants."""
    given, wanted = given.lower(), wanted.lower()
    if given in (wanted, UNKNOWN):
        return argument
    widened = given in _WIDER and wanted in _WIDER[_WIDER.index(given) :]
    exact = given.startswith("decimal") and wanted == "double"
    if not (widened or exact or given == "void"):
        raise script.error(
            span,
            f"{call.function} takes {wanted.upper()}, but {argument} is {given.upper()}",
            f"Write CAST({argument} AS {wanted.upper()}).",
        )
    first, *middle = argument.pieces
    pieces = [f"CAST({first}", *middle]
    pieces[-1] += f" AS {wanted})"
    return Expr(pieces=tuple(pieces), uses=argument.uses)
