"""UNION ALL: what it takes, and what it becomes."""

from __future__ import annotations

import pytest

from anabranch.errors import ScriptError
from tests.coordinator.test_scripts import check

STREAMS = """
CREATE STREAM a (x DOUBLE, room STRING) FROM f() AT room1;
CREATE STREAM b (x DOUBLE, room STRING) FROM f() AT room2;
CREATE STREAM c (x DOUBLE) FROM f() AT room2;
"""


def test_streams_with_the_same_columns_are_one() -> None:
    changes = check(f"{STREAMS} CREATE QUERY u AS SELECT * FROM a UNION ALL SELECT * FROM b;")
    query = changes.add[-1]
    assert [port.stream for port in query.written.inputs] == ["a", "b"]
    assert [one.kind for one in query.written.operators] == ["union", "projection"]
    assert [(one.name, one.type) for one in query.columns] == [("x", "double"), ("room", "string")]
    (answer,) = check("EXPLAIN u", {one.name: one for one in changes.add}).answers
    assert "union a, b" in answer.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM a UNION SELECT * FROM b", "Write UNION ALL"),
        ("SELECT x FROM a UNION ALL SELECT * FROM b", r"takes SELECT \* FROM a stream"),
        ("SELECT * FROM a WHERE x > 1 UNION ALL SELECT * FROM b", r"takes SELECT \* FROM"),
        ("SELECT * FROM a UNION ALL SELECT x FROM b", r"takes SELECT \* FROM a stream"),
        ("SELECT * FROM a UNION ALL SELECT * FROM c", "c has other columns than a"),
        ("SELECT * FROM a UNION ALL SELECT * FROM d", "unknown stream or query 'd'"),
    ],
)
def test_what_cannot_be_united_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        check(f"{STREAMS} CREATE QUERY u AS {text};")
