"""Scripts checked without a Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.cli.conftest import Ended

Run = Callable[..., Ended]
STREAM = """
CREATE STREAM s (n BIGINT, room STRING, at TIMESTAMP, price DECIMAL(10, 2))
  FROM rate(tps = 10, room = "'hall'", at = 'timestamp_micros(ts)', price = '1', n = 'value') AT a;
CREATE TABLE rooms (name STRING, floor INT) FROM file(path = 'nowhere.csv') AT b;
CREATE AGGREGATE mid (DOUBLE) RETURNS DOUBLE FROM python(class = 'stats:Mid');
"""


@pytest.fixture
def checked(
    anabranch: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str], Ended]:
    monkeypatch.chdir(tmp_path)

    def check(text: str) -> Ended:
        before = SparkContext._active_spark_context
        (tmp_path / "s.sql").write_text(STREAM + text)
        ended = anabranch("check", "s.sql")
        assert SparkContext._active_spark_context is before
        return ended

    return check


@pytest.mark.parametrize(
    "query",
    [
        "SELECT n + 1 AS m, upper(room) AS r FROM s WHERE n > 3 AND room LIKE 'h%' AT b",
        "SELECT sum(n) AS total, avg(price) AS p, window_end FROM s[10s] GROUP BY room"
        " HAVING count(*) > 2",
        "SELECT mid(n) AS m FROM s[1m]",
        "SELECT s.n, floor FROM s[1 ROWS], rooms WHERE s.room = rooms.name",
        "SELECT n FROM s WHERE regexp_like(room, 'x') INTO jsonl(path = 'x.jsonl') AT b",
        "SELECT date_trunc('HOUR', at) AS h FROM s WHERE array_contains(array(n), 3)",
    ],
)
def test_what_is_right(checked: Callable[[str], Ended], query: str) -> None:
    ended = checked(f"CREATE QUERY q AS {query};")
    assert ended.out.startswith("s.sql: 4 statements, nothing wrong found.\n"), ended.err
    assert ended.code == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SELECT rom FROM s", "unknown column 'rom' of stream s. Did you mean 'room'?"),
        ("SELECT n FROM s WHERE n + 1", "WHERE needs a condition (boolean), this is BIGINT."),
        ("SELECT uper(room) AS r FROM s", "there is no function uper. Did you mean upper()?"),
        ("SELECT sum(room) AS r FROM s[1s]", "SUM takes a number, but s.room is STRING."),
        ("SELECT n FROM s INTO jsonl(pth = 'x')", "jsonl() has no option 'pth'. Did you mean"),
        ("SELECT n FROM s INTO csv(path = 'nowhere.csv')", "nowhere.csv, which table rooms"),
        ("SELECT n FROM s INTO jsonl()", "jsonl() needs the option 'path'."),
        ("SELECT n FROM s AT c d", "expected STANDBY"),
        ("SELECT n FROM t", "unknown stream"),
        ("CREATE STREAM x (a BIGNUM) FROM rate(tps = 1) AT a", "BIGNUM"),
        ("CREATE STREAM x (a INT) FROM rate(tps = 1, b = '2') AT a", "rate() has no option 'b'"),
        ("CREATE STREAM x (a INT) FROM kafak(topic = 't') AT a", "Did you mean 'kafka'?"),
    ],
)
def test_what_is_wrong(checked: Callable[[str], Ended], text: str, line: str) -> None:
    ended = checked(text if text.startswith("CREATE") else f"CREATE QUERY q AS {text};")
    assert ended.code == 1
    assert ended.err.startswith("error: s.sql:6:")
    assert line in ended.err


def test_explain_needs_no_spark_either(checked: Callable[[str], Ended]) -> None:
    ended = checked("EXPLAIN SELECT n + 1 AS next FROM s;")
    assert ended.code == 0, ended.err


POCKET = """
from anabranch import Pocket

class P(Pocket):
    query = "SELECT n + 1 AS m, upper(room) AS r FROM s WHERE n > 2"
    output = "CREATE STREAM alarm (message STRING)"

    def row(self, row):
        yield {"message": "x"}

class Wrong(P):
    query = "SELECT rom FROM s"
"""


def test_pockets_are_checked_with_what_they_read_and_fill(
    checked: Callable[[str], Ended], tmp_path: Path
) -> None:
    (tmp_path / "p.py").write_text(POCKET)
    right = (
        "CREATE POCKET p FROM python(class = 'p:P') AT a; CREATE QUERY q AS SELECT {} FROM alarm"
    )
    ended = checked(right.format("message") + " AT a;")
    assert ended.out.startswith("s.sql: 5 statements, nothing wrong found.\n"), ended.err
    assert "unknown column 'n' of stream alarm" in checked(right.format("n")).err
    ended = checked("CREATE POCKET p FROM python(class = 'p:Wrong') AT a;")
    assert "unknown column 'rom' of stream s. Did you mean 'room'?" in ended.err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("SELECT rom FROM s", "unknown column 'rom' of stream s. Did you mean 'room'?"),
        ("SELECT n FROM s AT a; CREATE QUERY q AS SELECT n FROM s AT a", "q exists already"),
        ("SELECT n FROM s INTO jsnol(path = 'x')", "there is no sink 'jsnol'"),
        ("SELECT n FROM s INTO jsonl(pth = 'x')", "jsonl() has no option 'pth'"),
        ("SELECT n FROM s", "table rooms: no such file"),
    ],
)
def test_run_says_such_things_before_it_starts_a_spark(
    checked: Callable[[str], Ended], anabranch: Run, tmp_path: Path, text: str, line: str
) -> None:
    if "no such file" not in line:
        (tmp_path / "nowhere.csv").write_text("name,floor\n")
    checked(f"CREATE QUERY q AS {text};")
    before = SparkContext._active_spark_context
    ended = anabranch("run", "s.sql", "--for", "1s")
    assert (ended.code, SparkContext._active_spark_context) == (1, before)
    assert line in ended.err
