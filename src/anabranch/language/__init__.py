"""Script text → statements → definitions. No Spark, no files, no clock."""

from anabranch.language.binding.binder import bind_query
from anabranch.language.binding.from_clause import Lookup
from anabranch.language.binding.sources import bind_aggregate, bind_shed, bind_stream, bind_table
from anabranch.language.expressions.types import Typer
from anabranch.language.grammar.lexer import is_complete
from anabranch.language.grammar.parser import parse
from anabranch.language.grammar.statements import (
    CreateAggregate,
    CreateQuery,
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    Explain,
    Name,
    Resume,
    Show,
    Statement,
)
from anabranch.language.source import Script, Span
from anabranch.plan.expressions import TypeAnswer

__all__ = [
    "CreateAggregate",
    "CreateQuery",
    "CreateStream",
    "CreateTable",
    "Describe",
    "Drop",
    "Explain",
    "Lookup",
    "Name",
    "Resume",
    "Script",
    "Show",
    "Span",
    "Statement",
    "TypeAnswer",
    "Typer",
    "bind_aggregate",
    "bind_query",
    "bind_shed",
    "bind_stream",
    "bind_table",
    "is_complete",
    "parse",
]
