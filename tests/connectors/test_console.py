from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from tests.connectors.reading import UTC_MICROS, message
from tests.connectors.writing import COLUMNS, numbered, sink, table_of


def test_lines(tmp_path, capsys):
    columns = COLUMNS | {"at": UTC_MICROS, "list": pa.list_(pa.int64())}
    made = sink("console", tmp_path, columns)
    made.open()
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    made.write(table_of(columns, [(1, "x", noon, [1]), (None, "two words\n", None, None)]))
    made.close()
    assert capsys.readouterr().out == (
        "q  1970-01-01T00:00:00.001000Z  a=1 s=x at=2026-01-31T12:00:00Z list=[1]\n"
        "q  1970-01-01T00:00:00.002000Z  a=NULL s='two words\\n' at=NULL list=NULL\n"
    )


def test_limit(tmp_path, capsys):
    made = sink("console", tmp_path, limit=3)
    made.open()
    for first in (1, 3, 5):
        made.write(numbered(first, 2))
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 4
    assert out[-1] == "q  … only the first 3 tuples are shown"
    assert message(lambda: sink("console", tmp_path, limit=0)) == (
        "console() has limit = 0. Give a whole number above 0."
    )


def test_nothing_that_a_terminal_would_obey_is_printed(tmp_path, capsys):
    name = "a\x1b]0;title\x07"
    made = sink("console", tmp_path, {name: pa.string(), "l": pa.list_(pa.string())})
    made.open()
    made.write(table_of({name: pa.string(), "l": pa.list_(pa.string())}, [("\x1b[2J", ["\x9b1m"])]))
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert "a\\x1b]0;title\\x07='\\x1b[2J' l=['\\x9b1m']" in shown
