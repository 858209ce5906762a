"""Script text → statements → definitions. No Spark, no files, no clock."""

from anabranch.language.binder import Lookup, TypeAnswer, Typer, bind_query, bind_stream
from anabranch.language.lexer import is_complete
from anabranch.language.parser import parse
from anabranch.language.source import Script, Span
from anabranch.language.statements import (
    CreateQuery,
    CreateStream,
    Describe,
    Drop,
    Explain,
    Name,
    Show,
    Statement,
)

__all__ = [
    "CreateQuery", "CreateStream", "Describe", "Drop", "Explain", "Lookup", "Name", "Script",
    "Show", "Span", "Statement", "TypeAnswer", "Typer", "bind_query", "bind_stream",
    "is_complete", "parse",
]  # fmt: skip
