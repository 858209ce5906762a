"""Shows answers in a notebook and at Python's prompt."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from anabranch.coordinator.scripts.replies import Answer


class Answers(list[Answer]):
    """The answers to a script, one for each statement."""

    def __repr__(self) -> str:
        return "\n".join(map(shown, self))

    def _repr_html_(self) -> str:
        return "\n".join(map(_html, self))


def shown(answer: Answer) -> str:
    """The answer as `anabranch sql` prints it."""
    if answer.kind != "table":
        return answer.text
    rows = [answer.columns, *answer.rows]
    widths = [max(len(str(row[at])) for row in rows) for at in range(len(answer.columns))]
    lines = [
        "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join([*([answer.text] if answer.text else []), *(line.rstrip() for line in lines)])


def _html(answer: Answer) -> str:
    text = f"<pre>{escape(answer.text)}</pre>" if answer.text else ""
    return text + (table(answer.columns, answer.rows) if answer.kind == "table" else "")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as HTML; its contents are shown as text."""
    head = "".join(f"<th>{escape(str(name))}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
