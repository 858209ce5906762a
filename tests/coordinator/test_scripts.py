"""What a script is checked for before any of it is deployed, and what its statements answer."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.coordinator.scripts import Answer, Changes, ScriptCheck, sites_named
from anabranch.errors import ConfigError, ScriptError, SourceError
from anabranch.language.source import Script
from anabranch.plan.catalog import AggregateDef, AnyDef, QueryDef, StreamDef, TableDef
from anabranch.plan.operators import Aggregate, Call, Column, Join
from anabranch.plan.protection import Standby
from tests.language.fakes import FakeTyper

SOURCES = """
CREATE STREAM a (x DOUBLE, room STRING) FROM f() AT room1;
CREATE STREAM b (x DOUBLE) FROM f() AT room2;
CREATE TABLE rooms (id INT, name STRING) FROM f() AT centre;
CREATE AGGREGATE middle (DOUBLE) RETURNS DOUBLE FROM python(class = 'stats:Middle');
"""


class FakePeer:
    """A site that knows a few types, and two functions."""

    def call(self, action: str, **body: Any) -> Any:
        if action == "check_types":
            return [self._type(column["type"]) for column in body["columns"]]
        if action == "check":
            return self._check(body)
        assert action == "analyse"
        if body["expressions"] in (("`avg`()",), ("`upper`()",)):
            return [{"type": None, "error": "wrong number of arguments"}]
        if not body["columns"]:
            return [{"type": None, "error": "cannot resolve routine"}]
        columns = tuple(Column.model_validate(one) for one in body["columns"])
        answers = FakeTyper()(columns, body["expressions"], aggregate=body["aggregate"])
        return [{"type": one.type, "error": one.error} for one in answers]

    def _check(self, body: dict[str, Any]) -> None:
        """Sources and sinks that know the options `path` and `n`, and no n but 1."""
        calls = [one["source"] for one in body["sources"]] + [one["sink"] for one in body["tasks"]]
        for call in calls:
            if unknown := set(call["options"]) - {"path", "n"}:
                raise ConfigError(f"{call['name']}() has no option {min(unknown)!r}")
            if call["options"].get("n", 1) != 1:
                raise ConfigError(f"{call['name']}() has n = {call['options']['n']}", remedy="1.")
            if call["options"].get("path") == "none":
                raise SourceError("no such file", place="none")

    def _type(self, type_: str) -> dict[str, str | None]:
        if type_.upper().startswith("VARCHAR"):
            return {"type": None, "error": "is a type of stored tables"}
        return {"type": type_.lower(), "error": ""}


class FakeSites:
    def __init__(self, *names: str) -> None:
        self._names = list(names)

    def names(self) -> list[str]:
        return [*self._names, "lost"]

    expected = frozenset({"to_come"})

    def alive(self) -> list[str]:
        return self._names

    def peer(self, name: str) -> FakePeer:
        assert name in self._names
        return FakePeer()

    def any(self) -> FakePeer:
        return FakePeer()


def check(
    text: str, known: dict[str, AnyDef] | None = None, sites: tuple[str, ...] = ()
) -> Changes:
    around = FakeSites(*(sites or ("room2", "room1", "centre")))
    return ScriptCheck(
        Script(text), known or {}, around, "/base", lambda: [("room1", "address", "up")]  # type: ignore[arg-type]
    ).run()  # fmt: skip


def made(text: str) -> dict[str, AnyDef]:
    return {one.name: one for one in check(text).add}


def answer(text: str) -> Answer:
    return check(SOURCES + text).answers[-1]


def error(text: str, before: str = SOURCES) -> str:
    with pytest.raises(ScriptError) as caught:
        check(text, made(before))
    return f"{caught.value}\n{caught.value.excerpt}"


def test_definitions_of_every_kind() -> None:
    found = made(f"{SOURCES} CREATE QUERY q AS SELECT x FROM a;")
    assert [type(one) for one in found.values()] == [
        StreamDef, StreamDef, TableDef, AggregateDef, QueryDef,
    ]  # fmt: skip
    table, aggregate = found["rooms"], found["middle"]
    assert isinstance(table, TableDef)
    assert [column.type for column in table.columns] == ["int", "string"]
    assert isinstance(aggregate, AggregateDef)
    assert (aggregate.arguments, aggregate.type, aggregate.base) == (("double",), "double", "/base")


def test_what_creations_answer() -> None:
    lines = [one.text for one in check(f"{SOURCES} CREATE QUERY q AS SELECT x FROM a;").answers]
    assert lines == [
        "stream a created at room1",
        "stream b created at room2",
        "table rooms created at centre",
        "aggregate middle created",
        "query q created at room1",
    ]


def test_statements_see_what_those_before_them_made() -> None:
    found = made(f"{SOURCES} CREATE QUERY q AS SELECT a.x FROM a[1s], b[1s];"
                 "CREATE QUERY r AS SELECT middle(x) AS m FROM q[1m];")  # fmt: skip
    q, r = found["q"], found["r"]
    assert isinstance(q, QueryDef)
    assert isinstance(r, QueryDef)
    assert isinstance(q.written.operators[0], Join)
    assert isinstance(r.written.operators[0], Aggregate)


def test_a_stream_without_source_is_at_the_first_site_in_order() -> None:
    (stream,) = check("CREATE STREAM alarm (message STRING)").add
    assert isinstance(stream, StreamDef)
    assert (stream.site, stream.source) == ("centre", None)


def test_a_source_without_at_needs_a_single_site() -> None:
    (table,) = check("CREATE TABLE t (a INT) FROM f()", sites=("only",)).add
    assert isinstance(table, TableDef)
    assert table.site == "only"
    assert "table t needs AT site" in error("CREATE TABLE t (a INT) FROM f()")


def test_a_query_alone_gets_a_name_and_the_console() -> None:
    changes = check(f"{SOURCES} SELECT x FROM a; SELECT x FROM b INTO f();")
    first, second = changes.add[-2:]
    assert isinstance(first, QueryDef)
    assert isinstance(second, QueryDef)
    assert (first.name, first.written.name, first.sink) == (
        "query_1",
        "query_1",
        Call(name="console"),
    )
    assert (second.name, second.sink) == ("query_2", Call(name="f"))
    assert changes.answers[-2].text == "query query_1 created at room1"
    assert first.text == "SELECT x FROM a"


def test_a_made_up_name_is_free_now_and_later_in_the_script() -> None:
    text = "CREATE QUERY Query_1 AS SELECT x FROM a; SELECT x FROM a; SELECT x FROM b;"
    later = "CREATE QUERY query_3 AS SELECT x FROM a;"
    names = [one.name for one in check(SOURCES + text + later).add[4:]]
    assert names == ["Query_1", "query_2", "query_4", "query_3"]


def test_an_explained_query_is_not_created() -> None:
    changes = check(f"{SOURCES} EXPLAIN MASTER a SELECT a.x FROM a[1s], b[1s], rooms;")
    assert len(changes.add) == 4
    assert changes.answers[-1].kind == "text"
    assert "rooms" in changes.answers[-1].text


def test_show() -> None:
    assert answer("SHOW TABLES;") == Answer(
        "table",
        columns=("table", "site", "from", "columns"),
        rows=(("rooms", "centre", "f()", "id int, name string"),),
    )
    assert answer("SHOW AGGREGATES;").rows == (
        ("middle", "double", "double", "python(class = 'stats:Middle')"),
    )
    joined = "CREATE QUERY q AS SELECT a.x FROM a[1s], b[1s], a[2s] AS c INTO f() AT centre;"
    protected = "CREATE QUERY r AS SELECT x FROM a INTO f() ON room2 STANDBY ON centre BATCH 9;"
    assert answer(f"{joined} {protected} SHOW QUERIES;") == Answer(
        "table",
        columns=("query", "site", "reads", "into", "standby", "columns"),
        rows=(
            ("q", "centre", "a, b", "f()", "", "x double"),
            ("r", "room1", "a", "f() ON room2", "STANDBY ON centre BATCH 9", "x double"),
        ),
    )
    alarm = "CREATE STREAM alarm (message STRING) AT room1;"
    assert [row[:3] for row in answer(f"{alarm} SHOW STREAMS;").rows] == [
        ("a", "room1", "f()"), ("b", "room2", "f()"), ("alarm", "room1", ""),
    ]  # fmt: skip
    assert answer("SHOW SITES;").rows == (("room1", "address", "up"),)


def test_describe() -> None:
    found = answer("DESCRIBE ROOMS;")
    assert found.rows == (("id", "int"), ("name", "string"))
    assert found.text == "CREATE TABLE rooms (id INT, name STRING) FROM f() AT centre"
    assert answer("DESCRIBE middle;").rows == (("argument 1", "double"), ("result", "double"))
    assert answer("EXPLAIN rooms;") == answer("DESCRIBE rooms;")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DROP STREAM a;", "a is read by q, r"),
        ("DROP TABLE rooms;", "rooms is read by q"),
        ("DROP AGGREGATE middle;", "middle is used by r"),
        ("DROP STREAM rooms;", "rooms is a table. Write DROP TABLE rooms."),
        ("DROP QUERY middle;", "middle is an aggregate. Write DROP AGGREGATE middle."),
        ("DROP TABLE room;", "unknown stream or query 'room'. Did you mean 'rooms'?"),
    ],
)
def test_what_cannot_be_dropped(text: str, message: str) -> None:
    users = (
        "CREATE QUERY q AS SELECT a.x FROM a[1s], rooms;"
        "CREATE QUERY r AS SELECT middle(x) AS m FROM a[1s];"
    )
    assert message in error(text, SOURCES + users)


def test_drop() -> None:
    changes = check("DROP TABLE rooms; DROP AGGREGATE IF EXISTS Middle;", made(SOURCES))
    assert changes.drop == ["rooms", "middle"]
    assert [one.text for one in changes.answers] == ["table rooms dropped",
                                                     "aggregate middle dropped"]  # fmt: skip
    gone = check("DROP TABLE IF EXISTS nothing;").answers
    assert gone[0].text == "there is no table nothing"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE TABLE A (x INT) FROM f() AT room1",
         "script:1:14: A exists already. Drop it first, or rename this."),
        ("CREATE AGGREGATE avg (INT) RETURNS INT FROM python(class = 'm:C')",
         "script:1:18: avg is a function of Spark's. Choose another name."),
        ("CREATE AGGREGATE m (INT) RETURNS VARCHAR(3) FROM python(class = 'm:C')",
         "script:1:34: VARCHAR(3) cannot be the type of a column: is a type of stored tables."),
        ("CREATE TABLE t (x VARCHAR(3)) FROM f() AT room1", "script:1:19: VARCHAR(3) cannot be"),
        ("CREATE TABLE t (x INT) FROM f() AT room3",
         "script:1:36: unknown site 'room3'. Did you mean 'room2'?"),
        ("SELECT a.x FROM a[1s], b[1s] AT lost", "script:1:33: site lost is not reachable."),
        ("SELECT x FROM a INTO f() ON rooom2",
         "script:1:29: unknown site 'rooom2'. Did you mean 'room2'?\n"),
        ("SELECT x FROM a INTO f() ON lost",
         "script:1:29: site lost is not reachable. Start it, or choose another.\n"),
        ("SELECT x FROM a STANDBY BATCH 5 ON center",
         "script:1:36: unknown site 'center'. Did you mean 'centre'?\n"),
        ("SELECT x FROM a AT to_come",
         "script:1:20: site to_come has not joined yet."
         " Start it there: anabranch site to_come --coordinator …\n"),
        ("SELECT x FROM a STANDBY ON lost", "script:1:28: site lost is not reachable."),
        ("SELECT x FROM a STANDBY ON room1",
         "script:1:28: the query itself runs at room1, and its standby must be elsewhere."),
        ("SELECT y FROM a", "script:1:8: unknown column 'y' of stream a"),
        ("SELECT x FROM middle", "script:1:15: middle is an aggregate, not a stream"),
    ],
)  # fmt: skip
def test_mistakes(text: str, expected: str) -> None:
    assert error(text).startswith(expected)


def test_nothing_is_made_by_a_script_with_a_mistake_at_its_end() -> None:
    known = made(SOURCES)
    before = dict(known)
    with pytest.raises(ScriptError):
        check("DROP STREAM b; SELECT x FROM a; SELECT x FROM b", known)
    assert known == before


def test_a_protected_query_is_described_and_explained_with_its_protection() -> None:
    text = (
        "CREATE QUERY q AS SELECT x FROM a INTO f() ON room2"
        " STANDBY RECOVERY 2s OVERHEAD 30% COMPRESS"
    )
    assert answer(f"{text}; DESCRIBE q;").text == text
    explained = answer(f"{text}; EXPLAIN q;").text
    assert explained.splitlines() == [
        "sink f()                    @ room2",
        "└─ link q                   @ room1 → room2",
        "   └─ projection x  [q]     @ room1",
        "      │  standby: batch tuned for recovery 2s and overhead 30%, compress zstd",
        "      └─ stream a from f()  @ room1",
    ]
    assert answer(f"EXPLAIN {text};").text == explained
    found = made(f"{SOURCES} {text};")["q"]
    assert isinstance(found, QueryDef)
    assert found.standby == Standby(recovery_us=2_000_000, overhead=0.3, compress="zstd")
    assert found.sink_site == "room2"


def test_sites_named_with_on() -> None:
    text = "SELECT x FROM a STANDBY ON s INTO f() ON hall; SELECT x FROM b STANDBY AT room3;"
    assert sites_named(Script(SOURCES + text)) == [
        "room1", "room2", "centre", "hall", "s", "room3",
    ]  # fmt: skip


def test_sites_named() -> None:
    assert sites_named(Script(f"{SOURCES} SELECT x FROM a AT room2; SHOW SITES;")) == [
        "room1", "room2", "centre",
    ]  # fmt: skip


def test_an_option_that_is_wrong_is_underlined() -> None:
    assert error("CREATE STREAM c (x INT) FROM f(path = 'p', nn = 1) AT room1;") == (
        "script:1:44: f() has no option 'nn'\n"
        "CREATE STREAM c (x INT) FROM f(path = 'p', nn = 1) AT room1;\n"
        "                                           ^^^^^^"
    )
    assert error("SELECT x FROM a INTO g(n = 2);") == (
        "script:1:24: g() has n = 2. 1.\n"
        "SELECT x FROM a INTO g(n = 2);\n"
        "                       ^^^^^"
    )


def test_what_is_not_there_is_no_mistake_in_the_text() -> None:
    with pytest.raises(SourceError) as caught:
        check("CREATE STREAM c (x INT) FROM f(path = 'none') AT room1;")
    assert caught.value.line() == "none: no such file"


def test_nothing_outside_is_looked_at_to_explain() -> None:
    assert "sink g(n = 2)" in answer("EXPLAIN SELECT x FROM a INTO g(n = 2);").text
