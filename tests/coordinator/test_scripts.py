"""What a script is checked for before any of it is deployed, and what its statements answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.sites import absence
from anabranch.coordinator.placement.placing import Placing
from anabranch.coordinator.scripts.references import asks_types, sites_named, sites_needed
from anabranch.coordinator.scripts.scripts import Answer, ScriptChanges, ScriptCheck
from anabranch.errors import ConfigError, ScriptError, SinkError, SourceError
from anabranch.language.source import Script
from anabranch.link.message import Message
from anabranch.link.messages import (
    Analyse,
    Check,
    Checked,
    CheckTypes,
    GoOnWithout,
    Plans,
    StageSize,
)
from anabranch.plan.catalog import AggregateDef, AnyDef, QueryDef, StreamDef, TableDef
from anabranch.plan.expressions import TypeAnswer
from anabranch.plan.operators import Aggregate, Call, Column, Join
from anabranch.plan.places import Place
from anabranch.plan.service_levels import Standby
from anabranch.plan.tasks import TaskSpec
from tests.language.fakes import FakeTyper

SOURCES = """
CREATE STREAM a (x DOUBLE, room STRING) FROM f() AT room1;
CREATE STREAM b (x DOUBLE) FROM f() AT room2;
CREATE TABLE rooms (id INT, name STRING) FROM f() AT centre;
CREATE AGGREGATE middle (DOUBLE) RETURNS DOUBLE FROM python(class = 'stats:Middle');
"""


class FakePeer:
    """A site that knows a few types, and two functions."""

    def send(self, asked: Message[Any], timeout_s: float) -> Any:
        match asked:
            case CheckTypes(columns):
                return [self._type(column.type) for column in columns]
            case Check(sources, tasks):
                return self._check([*sources, *tasks])
            case StageSize(stage):
                return stage.input.source.options.get("n", 0) * 3_000_000
            case Plans():
                return ()  # which only picks columns
            case Analyse(columns, expressions, aggregate):
                return self._analyse(columns, expressions, aggregate=aggregate)
        raise AssertionError(asked)

    def _analyse(
        self, columns: tuple[Column, ...], expressions: tuple[str, ...], *, aggregate: bool
    ) -> Sequence[TypeAnswer]:
        if expressions in (("`avg`()",), ("`upper`()",)):
            return [TypeAnswer(None, "wrong number of arguments")]
        if not columns:
            return [TypeAnswer(None, "there is no function f")]
        return FakeTyper()(columns, expressions, aggregate=aggregate)

    def _check(self, asked: Sequence[StreamDef | TableDef | TaskSpec]) -> Checked:
        """Sources and sinks that know the options `path` and `n`, and no n but 1."""
        places: list[Place] = []
        for one in asked:
            writes = isinstance(one, TaskSpec)
            call = one.sink if isinstance(one, TaskSpec) else one.source
            assert call
            if unknown := set(call.options) - {"path", "n"}:
                raise ConfigError(f"{call.name}() has no option {min(unknown)!r}")
            if call.options.get("n", 1) != 1:
                raise ConfigError(f"{call.name}() has n = {call.options['n']}", remedy="1.")
            if call.options.get("path") == "none":
                raise (SinkError if writes else SourceError)("no such file", place="none")
            places += self._places(call, writes)
        return Checked(tuple(places))

    def _places(self, call: Call, writes: bool) -> list[Place]:
        """On one machine, and just what `path` says."""
        path = call.options.get("path")
        place = Place(machine="m", path=f"/base/{path}", extent="file", writes=writes)
        return [place] if path else []

    def _type(self, type_: str) -> TypeAnswer:
        if type_.upper().startswith("VARCHAR"):
            return TypeAnswer(None, "is a type of stored tables")
        return TypeAnswer(type_.lower())


class FakeSites:
    def __init__(self, *names: str) -> None:
        self._names = list(names)

    def names(self) -> list[str]:
        return [*self._names, "lost"]

    def heard_of(self, name: str) -> bool:
        return name in (*self.names(), "to_come", "begun")

    def absence(self, name: str) -> tuple[str, str]:
        return absence(name, {"begun": 12.3}, self.names(), {"to_come"})

    def alive(self) -> list[str]:
        return self._names

    def record(self, name: str) -> Any:
        return None

    def addresses(self) -> dict[str, str]:
        return {"far": "there:1", **dict.fromkeys(self._names, "here:1")}

    def peer(self, name: str) -> FakePeer:
        assert name in self._names
        return FakePeer()

    def any(self) -> FakePeer:
        return FakePeer()


class FakeCatalog:
    def samples(self, kind: str) -> list[str]:
        return []


def placing(sites: Any) -> Placing:
    catalog: Any = FakeCatalog()
    return Placing(sites, catalog, ClusterConfig())


def check(
    text: str, known: dict[str, AnyDef] | None = None, sites: tuple[str, ...] = ()
) -> ScriptChanges:
    around: Any = FakeSites(*(sites or ("room2", "room1", "centre")))
    rows: list[tuple[str, ...]] = [("room1", "address", "up")]
    return ScriptCheck(
        Script(text), known or {}, around, "/base", lambda: rows, placing(around)
    ).run()


def made(text: str) -> dict[str, AnyDef]:
    return {one.name: one for one in check(text).add}


def answer(text: str) -> Answer:
    return check(SOURCES + text).answers[-1]


def error(text: str, before: str = SOURCES) -> str:
    with pytest.raises(ScriptError) as caught:
        check(text, made(before))
    return f"{caught.value}\n{caught.value.excerpt}"


def test_results_that_a_sink_has_lost_are_given_up_where_it_is() -> None:
    known = made(
        f"{SOURCES} CREATE QUERY q AS SELECT x FROM a INTO jsonl(path = 'q') ON room2 AT room1;"
        " CREATE QUERY r AS SELECT x FROM q;"
    )
    changes = check("RESUME QUERY Q WITHOUT 981 TO 1000;", known)
    assert changes.give_up == ("room2", GoOnWithout("q/sink", 981, 1000))
    assert changes.answers[0].text == "query q goes on without its results 981 to 1,000"
    assert not changes.add
    assert not changes.drop
    for text, wrong in (
        ("RESUME QUERY r WITHOUT 1 TO 2;", "r is no query that writes anywhere"),
        ("RESUME QUERY p WITHOUT 1 TO 2;", "unknown stream or query 'p'"),
        ("DROP QUERY r; RESUME QUERY q WITHOUT 1 TO 2;", "RESUME stands alone. Run it by itself"),
    ):
        with pytest.raises(ScriptError, match=wrong):
            check(text, known)


def test_definitions_of_every_kind() -> None:
    found = made(f"{SOURCES} CREATE QUERY q AS SELECT x FROM a;")
    assert [type(one) for one in found.values()] == [
        StreamDef,
        StreamDef,
        TableDef,
        AggregateDef,
        QueryDef,
    ]
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
    found = made(
        f"{SOURCES} CREATE QUERY q AS SELECT a.x FROM a[1s], b[1s];"
        "CREATE QUERY r AS SELECT middle(x) AS m FROM q[1m];"
    )
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
        columns=("query", "site", "reads", "into", "asks for", "columns"),
        rows=(
            ("q", "centre", "a, b", "f()", "", "x double"),
            ("r", "room1", "a", "f() ON room2", "STANDBY ON centre BATCH 9", "x double"),
        ),
    )
    alarm = "CREATE STREAM alarm (message STRING) AT room1;"
    assert [row[:3] for row in answer(f"{alarm} SHOW STREAMS;").rows] == [
        ("a", "room1", "f()"),
        ("b", "room2", "f()"),
        ("alarm", "room1", ""),
    ]
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
        ("DROP TABLE room;", "there is no table room. Did you mean 'rooms'?"),
    ],
)
def test_what_cannot_be_dropped(text: str, message: str) -> None:
    users = (
        "CREATE QUERY q AS SELECT a.x FROM a[1s], rooms;"
        "CREATE QUERY r AS SELECT middle(x) AS m FROM a[1s];"
    )
    assert message in error(text, SOURCES + users)


def test_a_query_that_misses_something_says_so() -> None:
    """A source waits for its first reader; what flows already has been missed."""
    later = "CREATE QUERY q AS SELECT x FROM a; CREATE QUERY r AS SELECT x FROM q;"
    assert [one.text for one in check(later, made(SOURCES)).answers] == [
        "query q created at room1",
        "query r created at room1",
    ]
    known = made(f"{SOURCES} CREATE QUERY q AS SELECT x FROM a;")
    told = "  it sees what comes to {} from now on, and nothing of before"
    answers = check("CREATE QUERY r AS SELECT a.x FROM a[1s], q[1s], rooms;", known).answers
    assert answers[0].text.splitlines()[1:] == [told.format("a and q")]
    answers = check("CREATE QUERY r AS SELECT b.x FROM b, rooms;", known).answers
    assert answers[0].text.splitlines()[1:] == []


def test_what_to_drop_first_can_be_dropped_so() -> None:
    """In one go, however many read what reads it."""
    users = (
        "CREATE QUERY q AS SELECT x FROM a;"
        "CREATE QUERY `of q` AS SELECT x FROM q;"
        "CREATE QUERY both AS SELECT q.x FROM q[1s], `of q`[1s] AS other;"
        "CREATE QUERY other AS SELECT x FROM b;"
    )
    found = error("DROP STREAM a;", SOURCES + users)
    assert "a is read by q. Drop them first: DROP QUERY both; DROP QUERY `of q`; DROP QUERY q;" in (
        found
    )
    known = made(SOURCES + users)
    advised = found.partition("Drop them first: ")[2].splitlines()[0]
    assert check(f"{advised} DROP STREAM a;", known).drop == ["both", "of q", "q", "a"]


def test_drop() -> None:
    changes = check("DROP TABLE rooms; DROP AGGREGATE IF EXISTS Middle;", made(SOURCES))
    assert changes.drop == ["rooms", "middle"]
    assert [one.text for one in changes.answers] == [
        "table rooms dropped",
        "aggregate middle dropped",
    ]
    gone = check("DROP TABLE IF EXISTS nothing;").answers
    assert gone[0].text == "there is no table nothing"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "CREATE TABLE A (x INT) FROM f() AT room1",
            "script:1:14: A exists already. Drop it first, or rename this.",
        ),
        (
            "CREATE AGGREGATE avg (INT) RETURNS INT FROM python(class = 'm:C')",
            "script:1:18: avg is a function of Spark's. Choose another name.",
        ),
        (
            "CREATE AGGREGATE m (INT) RETURNS VARCHAR(3) FROM python(class = 'm:C')",
            "script:1:34: VARCHAR(3) cannot be the type of a column: is a type of stored tables.",
        ),
        ("CREATE TABLE t (x VARCHAR(3)) FROM f() AT room1", "script:1:19: VARCHAR(3) cannot be"),
        (
            "CREATE TABLE t (x INT) FROM f() AT room3",
            "script:1:36: unknown site 'room3'. Did you mean 'room2'?",
        ),
        ("SELECT a.x FROM a[1s], b[1s] AT lost", "script:1:33: site lost is not reachable."),
        (
            "SELECT x FROM a INTO f() ON rooom2",
            "script:1:29: unknown site 'rooom2'. Did you mean 'room2'?\n",
        ),
        (
            "SELECT x FROM a INTO f() ON lost",
            "script:1:29: site lost is not reachable. Start it, or choose another.\n",
        ),
        (
            "SELECT x FROM a STANDBY BATCH 5 ON center",
            "script:1:36: unknown site 'center'. Did you mean 'centre'?\n",
        ),
        (
            "SELECT x FROM a AT to_come",
            "script:1:20: site to_come has not joined yet."
            " Start it on its machine: anabranch site to_come --coordinator …\n",
        ),
        (
            "SELECT x FROM a AT begun",
            "script:1:20: site begun is starting (12 s so far). Try again in a moment.\n",
        ),
        ("SELECT x FROM a STANDBY ON lost", "script:1:28: site lost is not reachable."),
        (
            "SELECT x FROM a STANDBY ON room1 AT room1",
            "script:1:28: the query itself runs at room1, and its standby must be elsewhere.",
        ),
        ("SELECT y FROM a", "script:1:8: unknown column 'y' of stream a"),
        ("DROP POCKET q", "script:1:13: there is no pocket q. There are: none."),
        ("DROP QUERY z", "script:1:12: there is no query z. There are: none."),
        ("SELECT x FROM middle", "script:1:15: middle is an aggregate, not a stream"),
    ],
)
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
        "      │  placed: 50% of the cost; at room2 all would cost 100% more",
        "      └─ stream a from f()  @ room1",
        "",
        "The death of its site is noticed within 0µs if the process dies, 0µs if its machine does.",
    ]
    assert answer(f"EXPLAIN {text};").text == explained
    found = made(f"{SOURCES} {text};")["q"]
    assert isinstance(found, QueryDef)
    assert found.standby == Standby(recovery_us=2_000_000, overhead=0.3, compress="zstd")
    assert found.sink_site == "room2"


def test_a_query_without_at_is_placed_by_the_system() -> None:
    """Near what it reads as long as nothing is measured; not where it must not be."""
    found = made(f"""{SOURCES}
        CREATE QUERY near AS SELECT x FROM a;
        CREATE QUERY some AS SELECT x FROM a AT ANY OF (centre, room2);
        CREATE QUERY elsewhere AS SELECT x FROM a NOT AT room1;
        CREATE QUERY safe AS SELECT x FROM a STANDBY ON room1;""")
    sites = {name: one.site for name, one in found.items() if isinstance(one, QueryDef)}
    assert sites["near"] == "room1"
    assert sites["some"] in ("centre", "room2")
    assert sites["elsewhere"] != "room1"
    assert sites["safe"] != "room1"


def test_no_site_is_left() -> None:
    text = "SELECT x FROM a NOT AT ANY OF (room1, room2, centre)"
    assert "q may only be at no site at all" in error(f"CREATE QUERY q AS {text}")
    text = "SELECT x FROM a AT ANY OF (lost, to_come)"
    assert "q may only be at lost or to_come, which is not there" in error(
        f"CREATE QUERY q AS {text}"
    )
    assert "unknown site 'room3'" in error("SELECT x FROM a AT ANY OF (room1, room3)")
    assert "unknown site 'room3'" in error("SELECT x FROM a NOT AT room3")


def test_sites_named_with_on() -> None:
    text = "SELECT x FROM a STANDBY ON s INTO f() ON hall; SELECT x FROM b STANDBY AT room3;"
    assert sites_named(Script(SOURCES + text)) == [
        "room1",
        "room2",
        "centre",
        "hall",
        "s",
        "room3",
    ]


def test_sites_named() -> None:
    assert sites_named(Script(f"{SOURCES} SELECT x FROM a AT room2; SHOW SITES;")) == [
        "room1",
        "room2",
        "centre",
    ]


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


def test_explain_refuses_the_options_that_create_refuses() -> None:
    assert error("EXPLAIN SELECT x FROM a INTO g(n = 2);").startswith("script:1:32: g() has n = 2")
    text = "EXPLAIN CREATE QUERY q AS SELECT x FROM a INTO g(m = 1);"
    assert error(text).startswith("script:1:50: g() has no option 'm'")


def test_what_is_not_there_is_no_mistake_to_explain() -> None:
    assert "sink g(path = 'none')" in answer("EXPLAIN SELECT x FROM a INTO g(path = 'none');").text


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("SHOW SITES; DROP QUERY q", set()),
        ("CREATE STREAM s (x INT) FROM f() AT room1", {"room1"}),
        ("CREATE STREAM s (x INT) FROM f() AT centre", set()),
        ("CREATE STREAM s (x INT) FROM f()", {"room1", "room2"}),
        ("CREATE QUERY q AS SELECT x FROM A AT centre", {"room1"}),
        ("CREATE QUERY q AS SELECT x FROM n AT centre STANDBY ON room2", {"room2"}),
        ("EXPLAIN SELECT x FROM A AT centre", {"room1"}),
        ("EXPLAIN CREATE QUERY q AS SELECT x FROM n AT room2", {"room2"}),
        ("EXPLAIN q", set()),
        ("CREATE POCKET p FROM python(class = 'm:P') AT room1", {"room1"}),
        ("CREATE POCKET p FROM python(class = 'm:P')", {"room1", "room2"}),
    ],
)
def test_which_sites_statements_wait_for(text: str, needed: set[str]) -> None:
    assert sites_needed(Script(text), made(SOURCES), ["room1", "room2"]) == needed


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("SHOW SITES; DROP QUERY q; EXPLAIN q", False),
        ("EXPLAIN SELECT x FROM a", True),
        ("CREATE AGGREGATE g (INT) RETURNS INT FROM python(class = 'm:G')", True),
        ("CREATE POCKET p FROM python(class = 'm:P')", True),
    ],
)
def test_which_statements_wait_for_any_site(text: str, asks: bool) -> None:
    assert asks_types(Script(text)) == asks


def test_explain_says_where_a_query_is_by_now() -> None:
    known = made(SOURCES + "CREATE QUERY q AS SELECT x FROM a STANDBY ON room2;")
    query = known["q"]
    assert isinstance(query, QueryDef)
    known["q"] = query.model_copy(update={"site": "room2"})
    around: Any = FakeSites("room2")
    asked = ScriptCheck(
        Script("EXPLAIN q"),
        known,
        around,
        "/base",
        list,
        placing(around),
        lambda query: "centre",
    )
    text = asked.run().answers[0].text
    assert text.endswith("Now: q runs at room2, written for room1; centre stands by.")


@pytest.mark.parametrize(
    ("clauses", "warned"),
    [
        ("STANDBY INTO f() AT centre", "centre"),
        ("STANDBY INTO f() ON room2 AT centre", "room2"),
        ("STANDBY INTO f() ON room1 AT centre", ""),  # with it the stream would be away, too
        ("STANDBY INTO kafka() AT centre", ""),
        ("INTO f() AT centre", ""),
    ],
)
def test_a_sink_that_nothing_protects_is_warned_of(clauses: str, warned: str) -> None:
    lines = answer(f"CREATE QUERY q AS SELECT x FROM a {clauses}").text.splitlines()
    assert lines[0] == "query q created at centre"
    warning = f"warning: what q writes stays at {warned}, which nothing protects: while that site"
    assert [line.startswith(warning) for line in lines[1:]] == ([True] if warned else [])


def test_limits_that_cannot_hold_are_refused() -> None:
    query = "CREATE QUERY q AS SELECT x FROM a STANDBY RECOVERY 1ms COMPRESS AT centre"
    around: Any = FakeSites("room1", "centre")
    checked = ScriptCheck(
        Script(query),
        made(SOURCES),
        around,
        "/base",
        list,
        placing(around),
        heartbeat_us=500_000,
    )
    with pytest.raises(ScriptError) as caught:
        checked.run()
    assert caught.value.line().startswith("script:1:43: RECOVERY 1ms cannot hold")
    assert caught.value.excerpt.splitlines()[1].strip() == "^" * len("RECOVERY 1ms COMPRESS")


STAGED = """
CREATE STREAM r (x DOUBLE, room STRING) TIMESTAMP t FROM file(path = 'r'{n}) AT room1;
{query};
"""
GROUPED = "CREATE QUERY q AS SELECT room, sum(x) AS s FROM r[1s] GROUP BY room"


def explained(changes: ScriptChanges) -> str:
    return str(changes.answers[-1].text)


@pytest.mark.parametrize(
    ("n", "clause", "expected"),
    [
        ("", " STAGE", "stage: asked for"),
        ("", " STAGE(every = '2s') INTO f()", "checkpoint every 2s"),
        (", n = 1", "", "stage: chosen, since about 3,000,000 tuples are there"),
        ("", "", "no stage: about 0 tuples are there; it is chosen from 2,000,000 on"),
        (", n = 1", " NO STAGE", "no stage: asked for"),
        (", n = 1", " STANDBY", "no stage: the query has a standby"),
    ],
)
def test_a_stage_is_chosen_and_said_why(n: str, clause: str, expected: str) -> None:
    changes = check(STAGED.format(n=n, query=f"{GROUPED}{clause}; EXPLAIN q"))
    assert expected in explained(changes)
    query = next(one for one in changes.add if isinstance(one, QueryDef))
    streams = [one for one in changes.add if isinstance(one, StreamDef) and one.stage]
    assert [one.name for one in streams] == list(query.stages)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GROUPED.replace("[1s]", "[5 ROWS]"), "this cannot be a stage: its windows count rows"),
        (GROUPED.replace("sum(x)", "middle(x)"), "this cannot be a stage: middle is not merged"),
        ("CREATE QUERY q AS SELECT x FROM r", "this cannot be a stage: it is no window aggregate"),
        (GROUPED.replace("r[1s]", "a[1s]"), "this cannot be a stage: a f source cannot be read in"),
    ],
)
def test_what_cannot_be_a_stage_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        check(SOURCES + STAGED.format(n="", query=f"{text} STAGE"))


@pytest.mark.parametrize("option", ["every = 'soon'", "memory = 'much'", "speed = 1"])
def test_options_of_a_stage(option: str) -> None:
    with pytest.raises(ScriptError, match=f"STAGE has .*{option.split()[0]}"):
        check(STAGED.format(n="", query=f"{GROUPED} STAGE({option})"))


def test_a_stage_goes_with_its_query() -> None:
    changes = check(STAGED.format(n="", query=f"{GROUPED} STAGE; DROP QUERY q"))
    assert [one.name for one in changes.add] == ["r"]


def test_a_sink_that_would_write_what_a_stream_reads() -> None:
    text = (
        "CREATE STREAM c (x INT) FROM f(path = 'p') AT room1;\n"
        "CREATE QUERY q AS SELECT x FROM c INTO g(n = 1, path = 'p') AT room2;"
    )
    assert error(text) == (
        "script:2:49: g() would write /base/p, which stream c (script:1:32) reads. Choose another"
        " path, or drop c first.\n"
        "CREATE STREAM c (x INT) FROM f(path = 'p') AT room1;\n"
        "                               ^^^^^^^^^^\n"
        "CREATE QUERY q AS SELECT x FROM c INTO g(n = 1, path = 'p') AT room2;\n"
        "                                                ^^^^^^^^^^"
    )
    assert "would write /base/p, which stream c (script:1:32) reads" in error(
        text.replace("CREATE QUERY q AS", "EXPLAIN")
    )


def test_a_stream_that_would_read_what_a_query_writes() -> None:
    known = made(f"{SOURCES} SELECT x FROM a INTO g(path = 'p');")
    with pytest.raises(ScriptError) as caught:
        check("CREATE STREAM c (x INT) FROM f(path = 'p') AT room1;", known)
    assert caught.value.line() == (
        "script:1:32: f() would read /base/p, which query query_1, created before, writes."
        " Choose another path, or drop query_1 first."
    )


def test_two_queries_into_one_file() -> None:
    text = "SELECT x FROM a INTO g(path = 'p'); SELECT x FROM b INTO g(path = 'p');"
    assert "g() would write /base/p, which query query_1 (script:1:24) writes" in error(text)


def test_one_file_after_another_query_was_dropped_and_read_twice() -> None:
    check(
        "CREATE QUERY q AS SELECT x FROM a INTO g(path = 'p'); DROP QUERY q;"
        "CREATE QUERY r AS SELECT x FROM a INTO g(path = 'p');"
        "CREATE STREAM c (x INT) FROM f(path = 'r') AT room1;"
        "CREATE STREAM d (x INT) FROM f(path = 'r') AT room1;",
        made(SOURCES),
    )


SEVERAL = f"{GROUPED} STAGE(partitions = 'files'{{}}) ON room1, centre INTO f() AT centre"


def test_a_stage_at_several_sites_is_a_stream_for_each_and_one_of_what_they_merge() -> None:
    changes = check(STAGED.format(n="", query=f"{SEVERAL.format('')}; EXPLAIN q"))
    streams = [one for one in changes.add if isinstance(one, StreamDef) and one.stage]
    assert [(one.name, one.site, one.stage and one.stage.role) for one in streams] == [
        ("q.stage", "room1", "merge"),
        ("q.stage.1", "room1", "part"),
        ("q.stage.2", "centre", "part"),
    ]
    query = next(one for one in changes.add if isinstance(one, QueryDef))
    assert query.ends_with == ("q.stage",)
    assert "its partitions are dealt out to room1, centre" in explained(changes)
    assert "results are merged in the global database" in explained(changes)


def test_where_no_key_is_at_two_sites_the_query_reads_them_all() -> None:
    changes = check(STAGED.format(n="", query=f"{SEVERAL.format(', keyed = true')}; EXPLAIN q"))
    query = next(one for one in changes.add if isinstance(one, QueryDef))
    assert query.ends_with == query.stages == ("q.stage.1", "q.stage.2")
    assert "the global database is a backup" in explained(changes)
    gone = check("DROP QUERY q", changes_made(changes))
    assert gone.drop == ["q", "q.stage.1", "q.stage.2"]


def changes_made(changes: ScriptChanges) -> dict[str, AnyDef]:
    return made(SOURCES) | {one.name: one for one in changes.add}


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("STAGE ON room1, room1", "room1 is named twice"),
        ("STAGE(partitions = 'keys')", "STAGE has partitions = 'keys'"),
        ("STAGE(keyed = 1)", "STAGE has keyed = 1"),
        ("STAGE(lost = 'soon')", "STAGE has lost = 'soon'"),
        ("STAGE ON nowhere", "unknown site 'nowhere'"),
        ("STAGE ON", "expected the name of a site"),
    ],
)
def test_sites_and_options_of_a_stage_that_cannot_be(clause: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        check(STAGED.format(n="", query=f"{GROUPED} {clause}"))
    assert message in caught.value.message


def test_late_tuples_are_a_stream_that_goes_with_its_stage() -> None:
    text = f"{GROUPED} STAGE(late = true); CREATE QUERY l AS SELECT room, event_time FROM `q.late`"
    changes = check(STAGED.format(n="", query=f"{text}; EXPLAIN l"))
    assert "late tuples of r" in explained(changes)
    with pytest.raises(ScriptError, match="q is read by l"):
        check("DROP QUERY q", changes_made(changes))
    assert check("DROP QUERY l; DROP QUERY q", changes_made(changes)).drop == [
        "l",
        "q",
        "q.stage",
        "q.late",
    ]
