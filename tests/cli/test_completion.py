"""What Tab proposes, by what stands before the cursor."""

from __future__ import annotations

import pytest

from anabranch.cli.queries.completion import STATEMENTS, Candidate, KnownCall, Names, complete
from anabranch.cli.queries.prompt import column_names

NAMES = Names(
    streams={"sensor1": ["value", "fahrenheit"]},
    tables={"rooms": ["floor"]},
    queries={"warm": ["celsius"]},
    aggregates=["p90"],
    sites=["room1", "centre"],
    sources={
        "file": KnownCall(
            {"path": "the file", "format": "its format"}, {"format": ("csv", "json")}
        ),
        "rate": KnownCall({"tps": "tuples per second"}),
    },
    table_sources={"postgres": KnownCall({"table": "its name"})},
    sinks={"jsonl": KnownCall({"path": "the file"})},
)
STREAM = "CREATE STREAM s (a INT)"
QUERY = "CREATE QUERY q AS SELECT"


def texts(before: str, after: str = "") -> list[str]:
    return [candidate.text for candidate in complete(before, after, NAMES)]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", [*STATEMENTS, "help", "exit"]),
        ("de", ["DESCRIBE"]),
        ("SHOW SITES; d", ["DROP", "DESCRIBE"]),
        ("CREATE ", ["STREAM", "TABLE", "QUERY", "AGGREGATE", "POCKET", "SECRET"]),
        ("show ", ["STREAMS", "TABLES", "QUERIES", "AGGREGATES", "POCKETS", "SITES", "SECRETS"]),
        ("DROP STREAM ", ["sensor1"]),
        ("DROP QUERY ", ["warm"]),
        ("RESUME QUERY ", ["warm"]),
        ("DROP TABLE ", ["rooms"]),
        ("DROP AGGREGATE ", ["p90"]),
        ("DESCRIBE ", ["sensor1", "rooms", "warm", "p90"]),
        ("MASTER ", ["sensor1", "warm"]),
        ("MASTER sensor1 S", ["SELECT"]),
        ("CREATE TABLE t (a INT) ", ["FROM", "AT"]),
        ("CREATE TABLE t (a INT) FROM ", ["postgres("]),
        ("CREATE TABLE t (a INT) FROM postgres(", ["table = "]),
        ("CREATE AGGREGATE m (INT) ", ["RETURNS", "FROM"]),
        ("CREATE AGGREGATE m (INT) RETURNS INT FROM ", ["python("]),
        ("SELECT p", ["p90("]),
        ("SELECT celsius FROM warm[1s] G", ["GROUP BY"]),
        ("EXPLAIN w", ["warm"]),
        (f"{STREAM} ", ["TIMESTAMP", "LATENESS", "AHEAD", "SHED ABOVE", "KEEP BY", "FROM", "AT"]),
        (f"{STREAM} FROM ", ["file(", "rate("]),
        (f"{STREAM} FROM file(", ["path = ", "format = "]),
        (f"{STREAM} FROM file(path = 'a', ", ["format = "]),
        (f"{STREAM} FROM file(format = ", ["'csv'", "'json'"]),
        (f"{STREAM} FROM file(path = 'a') AT ", ["room1", "centre"]),
        (f"{QUERY} f", ["floor", "fahrenheit", "FROM"]),
        (f"{QUERY} celsius FROM ", ["sensor1", "rooms", "warm"]),
        (f"{QUERY} celsius FROM warm WHERE c", ["celsius", "COST"]),
        (f"{QUERY} celsius FROM warm INTO ", ["jsonl("]),
        (f"{QUERY} celsius FROM warm INTO jsonl(", ["path = "]),
        (f"{QUERY} celsius FROM warm AT c", ["centre"]),
        (f"{QUERY} celsius FROM warm S", ["STANDBY", "SLIDE"]),
        (
            f"{QUERY} celsius FROM warm INTO jsonl(path = 'x') ",
            ["ON", "STANDBY", "DEADLINE", "COST", "AT"],
        ),
        (f"{QUERY} celsius FROM warm INTO jsonl() ON ", ["room1", "centre"]),
        (
            f"{QUERY} celsius FROM warm INTO jsonl() ON room1 AT centre ",
            ["STANDBY", "DEADLINE", "COST"],
        ),
        (
            f"{QUERY} celsius FROM warm AT centre STANDBY ",
            ["ON", "BATCH", "RECOVERY", "OVERHEAD", "COMPRESS", "DEADLINE", "COST", "INTO"],
        ),
        (f"{QUERY} celsius FROM warm STANDBY ON ", ["room1", "centre"]),
        (f"{QUERY} celsius FROM warm STANDBY ON room1 RECOVERY 2s O", ["OVERHEAD"]),
        (f"{QUERY} celsius FROM warm STANDBY BATCH ", ["UNLIMITED"]),
        (
            f"{QUERY} celsius FROM warm DEADLINE 1s ",
            ["BEST EFFORT", "STANDBY", "COST", "INTO", "AT"],
        ),
        (f"{QUERY} celsius FROM warm COST 1ms ", ["STANDBY", "DEADLINE", "INTO", "AT"]),
        (
            f"{QUERY} celsius FROM warm STANDBY BATCH 5 OVERHEAD 30% ON room1 COMPRESS ",
            ["zlib", "lz4", "zstd", "RECOVERY", "DEADLINE", "COST", "INTO", "AT"],
        ),
    ],
)
def test_proposals(before: str, expected: list[str]) -> None:
    assert texts(before) == expected


@pytest.mark.parametrize(
    "before",
    [
        f"{STREAM} FROM file(path = 'r",
        f"{QUERY} celsius -- s",
        f"{QUERY} celsius /* s",
        "CREATE STREAM ",
        "CREATE STREAM s (",
        "DROP QUERY warm",
        "what is ( this ) ? ' ",
    ],
)
def test_nothing_to_propose(before: str) -> None:
    assert texts(before) == []


def test_columns_are_those_of_the_stream_named_behind_the_cursor() -> None:
    assert "fahrenheit" in texts(f"{QUERY} ", " FROM sensor1")
    assert "celsius" not in texts(f"{QUERY} ", " FROM sensor1")
    assert "celsius" in texts(f"{QUERY} ")


def test_a_candidate_replaces_what_was_typed_of_it() -> None:
    assert complete("DROP STREAM sen", "", NAMES) == [Candidate("sensor1", 3, "stream")]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("", []),
        ("a BIGINT", ["a"]),
        ("a DECIMAL(10,2), b STRUCT<c: INT, d: MAP<INT, INT>>, e INT", ["a", "b", "e"]),
    ],
)
def test_column_names_of_what_show_answers(columns: str, expected: list[str]) -> None:
    assert column_names(columns) == expected
