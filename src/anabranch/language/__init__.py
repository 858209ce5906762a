"""Script text → statements → definitions. No Spark, no files, no clock."""

from anabranch.language.bind_from import Lookup
from anabranch.language.bind_sources import bind_aggregate, bind_stream, bind_table
from anabranch.language.binder import bind_query
from anabranch.language.lexer import is_complete
from anabranch.language.parser import parse
from anabranch.language.source import Script, Span
from anabranch.language.statements import (
    CreateAggregate,
    CreateQuery,
    CreateStream,
    CreateTable,
    Describe,
    Drop,
    Explain,
    Name,
    Show,
    Statement,
)
from anabranch.language.types import TypeAnswer, Typer

__all__ = [
    "CreateAggregate", "CreateQuery", "CreateStream", "CreateTable", "Describe", "Drop", "Explain",
    "Lookup", "Name", "Script", "Show", "Span", "Statement", "TypeAnswer", "Typer",
    "bind_aggregate", "bind_query", "bind_stream", "bind_table", "is_complete", "parse",
]  # fmt: skip
