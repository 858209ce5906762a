"""Expressions as the plan holds them: the text as written, with the columns taken out of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anabranch.language.grammar.lexer import Kind, Token
from anabranch.language.source import Script, Span
from anabranch.plan.expressions import Expr, Use


@dataclass(frozen=True)
class Placed:
    """The tokens of `span` mean the column `use`; `after` is the text that must follow it."""

    span: Span
    use: Use
    after: str = ""


@dataclass(frozen=True)
class Element:
    """A token's text, or a column that one or more tokens mean; `gap` if space comes before it.

    Two expressions say the same if the `key`s of their elements do.
    """

    text: str | Placed
    key: str | Use
    span: Span
    gap: bool


def elements(script: Script, tokens: Sequence[Token], placed: Iterable[Placed]) -> list[Element]:
    at = {one.span.start: one for one in placed}
    found: list[Element] = []
    end = tokens[0].span.start if tokens else 0
    for token in tokens:
        if token.span.start < end:
            continue
        gap = token.span.start > end
        if one := at.get(token.span.start):
            found.append(Element(one, one.use, one.span, gap))
        else:
            text = token.text if token.kind is Kind.WORD else script.slice(token.span)
            found.append(Element(text, token.key or text, token.span, gap))
        end = found[-1].span.end
    return found


def expr(script: Script, tokens: Sequence[Token], placed: Iterable[Placed]) -> Expr:
    """`tokens` as written but for comments, and with single spaces, around their columns."""
    pieces, uses = [""], []
    for element in elements(script, tokens, placed):
        pieces[-1] += " " if element.gap else ""
        if isinstance(element.text, Placed):
            uses.append(element.text.use)
            pieces.append(element.text.after)
        else:
            pieces[-1] += element.text
    return Expr(pieces=tuple(pieces), uses=tuple(uses))
