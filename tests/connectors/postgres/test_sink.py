"""The postgres sink against a real server."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest

from anabranch.connectors import SinkContext, make_sink
from anabranch.connectors.sink import Beginning, Continued
from anabranch.errors import Fenced, SinkAway, SinkBehind, SinkError
from bench.systems.postgres import Postgres
from bench.systems.server_process import free_port
from tests.connectors.reading import UTC_MICROS, message, no_spark
from tests.connectors.writing import COLUMNS, numbered, schema_of, table_of


@pytest.fixture
def table() -> str:
    return f"t_{uuid4().hex[:12]}"


@pytest.fixture
def make(postgres, table, tmp_path):
    """Sinks to `table`."""
    made = []

    def make(query="q", columns=COLUMNS, resume=False, run="r1", **options):
        given = {"url": postgres.url, "table": table, "retry": "1s"} | options
        schema = schema_of(columns)
        context = SinkContext(query, schema, given, tmp_path, no_spark, run, resume)
        made.append(make_sink("postgres", context))
        return made[-1]

    yield make
    for one in made:
        one.close()


def opened(sink):
    sink.open()
    return sink


def rows(postgres, table, query="q", run="r1"):
    statement = (
        f'SELECT a, s, _pos, _ts FROM "{table}" WHERE _stream = %s AND _run = %s ORDER BY _pos'
    )
    names = ("a", "s", "_pos", "_ts")
    return [dict(zip(names, row, strict=True)) for row in postgres.execute(statement, query, run)]


def test_nothing_is_made_before_open(postgres, table, make):
    made = make()
    assert postgres.execute("SELECT to_regclass(%s)", table) == [(None,)]
    made.open()
    columns = postgres.execute(
        "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
        table,
    )
    assert columns == [
        ("a", "bigint"),
        ("s", "text"),
        ("_stream", "text"),
        ("_run", "text"),
        ("_pos", "bigint"),
        ("_ts", "bigint"),
    ]


def test_rows_and_writing_the_same_again(postgres, table, make):
    made = opened(make())
    assert made.written() == 0
    made.write(numbered(1, 10))
    made.write(numbered(1, 10))
    made.write(numbered(6, 10))
    assert rows(postgres, table) == numbered(1, 15).to_pylist()
    assert made.written() == 15


def test_a_query_created_anew_deletes_rows_only_when_told_to(postgres, table, make):
    opened(make()).write(numbered(1, 5))
    opened(make("other")).write(numbered(1, 3))
    resumed = opened(make(resume=True))
    assert resumed.written() == 5
    resumed.write(numbered(4, 4))
    assert rows(postgres, table) == numbered(1, 7).to_pylist()
    refusal = (
        f"postgres() has table = '{table}', which holds 7 rows of an earlier query q. Add mode ="
        " 'append' to keep them, told apart by the column _run, or mode = 'replace' to delete them."
    )
    assert message(make(run="r2").check_new) == refusal
    opened(make(run="r2"))  # nobody who was asked for it, as `up --anew`
    assert rows(postgres, table) == numbered(1, 7).to_pylist()
    adding, replacing = make(run="r3", mode="append"), make(run="r4", mode="replace")
    named = f"7 rows of an earlier query q in the table {table}"
    assert adding.check_new() == f"{named} stay, and other rows bear another _run"
    assert replacing.check_new() == f"{named} are deleted"
    assert make("third").check_new() == ""
    anew = opened(adding)
    assert anew.written() == 0
    anew.write(numbered(1, 2))
    assert rows(postgres, table) == numbered(1, 7).to_pylist()
    assert rows(postgres, table, run="r3") == numbered(1, 2).to_pylist()
    opened(replacing).write(numbered(1, 1))
    assert rows(postgres, table, run="r4") == numbered(1, 1).to_pylist()
    assert postgres.execute(f"SELECT count(*) FROM {table} WHERE _stream = 'q'") == [(1,)]
    assert rows(postgres, table, "other") == numbered(1, 3).to_pylist()


VALUES = {
    "t": ("boolean", pa.bool_(), True, True),
    "i8": ("smallint", pa.int8(), -128, -128),
    "i16": ("smallint", pa.int16(), 2**15 - 1, 2**15 - 1),
    "i": ("integer", pa.int32(), -(2**31), -(2**31)),
    "l": ("bigint", pa.int64(), 2**63 - 1, 2**63 - 1),
    "f": ("real", pa.float32(), 1.5, 1.5),
    "d": ("double precision", pa.float64(), 0.1, 0.1),
    "inf": ("double precision", pa.float64(), float("-inf"), float("-inf")),
    "n": ("numeric(38,10)", pa.decimal128(38, 10), Decimal("-1.5"), Decimal("-1.5")),
    "s": ("text", pa.string(), 'a "b",\n\\N\t', 'a "b",\n\\N\t'),
    "empty": ("text", pa.string(), "", ""),
    "x": ("bytea", pa.binary(), b"\x00\\\xff", b"\x00\\\xff"),
    "day": ("date", pa.date32(), date(1582, 1, 2), date(1582, 1, 2)),
    "at": (
        "timestamp with time zone",
        UTC_MICROS,
        datetime(2026, 1, 31, 12, 0, 0, 7, UTC),
        datetime(2026, 1, 31, 12, 0, 0, 7, UTC),
    ),
    "ntz": (
        "timestamp without time zone",
        pa.timestamp("us"),
        datetime(1901, 1, 1, 0, 0, 1),
        datetime(1901, 1, 1, 0, 0, 1),
    ),
    "list": ("jsonb", pa.list_(pa.string()), ["a", None], ["a", None]),
    "map": ("jsonb", pa.map_(pa.string(), pa.int64()), {"k": 1}, {"k": 1}),
    "st": (
        "jsonb",
        pa.struct([("p", pa.float64()), ("q", UTC_MICROS)]),
        {"p": 0.5, "q": datetime(2026, 1, 1, tzinfo=UTC)},
        {"p": 0.5, "q": "2026-01-01T00:00:00Z"},
    ),
}


def test_every_type(postgres, table, make):
    columns = {name: type for name, (_, type, _, _) in VALUES.items()}
    given = tuple(value for *_, value, _ in VALUES.values())
    nulls = (None,) * len(given)
    opened(make(columns=columns)).write(table_of(columns, [given, nulls]))
    names = ", ".join(f'"{name}"' for name in columns)
    found = postgres.execute(f'SELECT {names} FROM "{table}" ORDER BY _pos')
    assert found == [tuple(expected for *_, expected in VALUES.values()), nulls]
    types = dict(
        postgres.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0",
            table,
        )
    )
    assert [types[name] for name in columns] == [type for type, *_ in VALUES.values()]
    make(columns=columns, resume=True)  # the table it made fits


def test_types_it_has_not(make):
    assert message(lambda: make(columns={"w": pa.duration("us")})) == (
        "postgres() has no type for the column w INTERVAL DAY TO SECOND. "
        "Convert it in the query, as in CAST(w AS STRING)."
    )


def test_odd_names(postgres, make):
    postgres.execute('CREATE SCHEMA IF NOT EXISTS "My Schema"')
    columns = {'a "b"': pa.int64(), "Ä.%s": pa.string(), "select": pa.int32()}
    opened(make('it\'s "q"', columns, table="My Schema.Odd;Name")).write(
        table_of(columns, [(1, "x", 2)])
    )
    assert postgres.execute('SELECT * FROM "My Schema"."Odd;Name"') == [
        (1, "x", 2, 'it\'s "q"', "r1", 1, 1000)
    ]


def test_a_failing_write_leaves_nothing(postgres, table, make):
    made = opened(make())
    made.write(numbered(1, 2))
    with pytest.raises(SinkError, match="invalid byte sequence"):
        made.write(table_of(COLUMNS, [(3, "x"), (4, "\x00")], first=3))
    assert rows(postgres, table) == numbered(1, 2).to_pylist()
    made.write(numbered(3, 1))
    assert rows(postgres, table) == numbered(1, 3).to_pylist()


def test_a_table_that_does_not_fit(postgres, table, make):
    place = postgres.url.partition("@")[2]
    postgres.execute(f"CREATE TABLE {table} (a integer, b text, _stream text, _pos bigint)")
    assert message(make) == (
        f"{place}: the table {table} does not fit the query: a is integer instead of bigint, "
        "s text is missing, _ts bigint is missing, b is not in the query. "
        "Name another table, or drop that one."
    )
    postgres.execute(f"DROP TABLE {table}")
    postgres.execute(
        f"CREATE TABLE {table} (s text, a bigint, _ts bigint, _stream text, _pos bigint)"
    )
    assert message(make) == (
        f"{place}: the table {table} has no key. "
        f'Run ALTER TABLE "{table}" ADD PRIMARY KEY (_stream, _run, _pos).'
    )
    postgres.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (_stream, _pos)")
    opened(make()).write(numbered(1, 3))  # whatever the order of its columns
    assert rows(postgres, table) == numbered(1, 3).to_pylist()


def test_mistakes(postgres, make):
    nowhere = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    assert message(lambda: make(url=f"postgresql://me:secret@{nowhere}/db")) == (
        f"{nowhere}/db: Connection refused. Check the url, and that the server runs."
    )
    assert time.monotonic() - began < 5
    unknown = postgres.url.replace("/postgres", "/none")
    assert 'database "none" does not exist' in message(lambda: make(url=unknown))
    assert message(lambda: make(url="nonsense")) == (
        'postgres() has a url that is none: missing "=" after "nonsense" in connection info string'
        ". Give one such as 'postgresql://user:password@host:5432/database'."
    )
    assert "there is no schema 'nix'. Run CREATE SCHEMA" in message(lambda: make(table="nix.t"))
    assert "Did you mean 'table'?" in message(lambda: make(tabel="t"))


def test_a_lost_connection_is_made_anew(postgres, table, make):
    made = opened(make())
    made.write(numbered(1, 2))
    postgres.drop_connections()
    made.write(numbered(3, 2))
    assert rows(postgres, table) == numbered(1, 4).to_pylist()


def test_a_server_that_comes_back_and_one_that_does_not(tmp_path):
    server = Postgres()
    try:
        server.start()
        given = {"url": server.url, "table": "t", "retry": "30s"}
        context = SinkContext("q", schema_of(COLUMNS), given, tmp_path, no_spark, "r1")
        made = opened(make_sink("postgres", context))
        made.write(numbered(1, 2))
        server.stop()
        server.start()
        made.write(numbered(3, 2))
        assert rows(server, "t") == numbered(1, 4).to_pylist()
        server.stop()
        began = time.monotonic()
        with pytest.raises(SinkAway) as away:  # soon, whatever `retry` says: it is to be seen
            made.write(numbered(5, 1))
        assert str(away.value) == f"127.0.0.1:{server.port}/postgres: Connection refused"
        assert time.monotonic() - began < 10
        resumed = SinkContext("q", schema_of(COLUMNS), given, tmp_path, no_spark, "r1", True)
        make_sink("postgres", resumed)  # what goes on waits for the server when it is opened
        server.start()
        made.write(numbered(5, 1))
        assert rows(server, "t") == numbered(1, 5).to_pylist()
        made.close()
    finally:
        server.remove()


def test_many_rows(postgres, table, make):
    opened(make()).write(numbered(1, 100_000))
    assert rows(postgres, table) == numbered(1, 100_000).to_pylist()


# -- the fence -----------------------------------------------------------------------------------


def at(sink, epoch, after=0):
    sink.open(Beginning(epoch, after))
    return sink


def test_the_later_epoch_writes_and_the_earlier_one_is_told(postgres, table, make):
    old = at(make(), 1)
    old.write(numbered(1, 3))
    new = at(make(resume=True), 2)
    assert new.written() == 3
    with pytest.raises(Fenced, match="another writes now"):
        old.write(numbered(4, 2))
    new.write(numbered(4, 1))
    with pytest.raises(Fenced, match="another site writes since epoch 2"):
        at(make(resume=True), 1)
    new.write(numbered(5, 1))  # who had no right has disturbed nobody
    assert rows(postgres, table) == numbered(1, 5).to_pylist()


def test_of_one_epoch_the_last_to_open_writes(postgres, table, make):
    old = at(make(), 1)
    new = at(make(resume=True), 1)
    new.write(numbered(1, 1))
    with pytest.raises(Fenced):
        old.write(numbered(1, 1))


def test_a_query_that_was_dropped_writes_no_more_and_counts_no_more(postgres, table, make):
    ghost = at(make(), 5)
    ghost.write(numbered(1, 4900))
    new = at(make(run="r2", mode="append"), 0)
    new.write(numbered(1, 100))
    with pytest.raises(Fenced):
        ghost.write(numbered(4901, 100))
    with pytest.raises(Fenced, match="created anew since"):
        at(make(resume=True), 6)
    again = at(make(run="r2", resume=True), 0)
    assert again.written() == 100
    assert rows(postgres, table, run="r2") == numbered(1, 100).to_pylist()


def test_a_table_from_before_there_were_fences(postgres, table, make):
    postgres.execute(
        f"CREATE TABLE {table} (a bigint, s text, _stream text, _pos bigint, _ts bigint,"
        " PRIMARY KEY (_stream, _pos))"
    )
    statement = (
        f"INSERT INTO {table} SELECT i, 'r' || i, %s, i, 1000 * i FROM generate_series(1, {{}}) i"
    )
    postgres.execute(statement.format(7), "q")
    postgres.execute(statement.format(3), "other")
    made = at(make(resume=True, run="0af3"), 3, after=7)
    assert made.written() == 7
    made.write(numbered(8, 2))
    assert rows(postgres, table, run="0af3") == numbered(1, 9).to_pylist()
    assert rows(postgres, table, "other", "") == numbered(1, 3).to_pylist()
    opened(make(mode="append")).write(numbered(1, 2))
    assert rows(postgres, table, run="r1") == numbered(1, 2).to_pylist()


def test_a_row_that_something_else_has_written_is_an_error(postgres, table, make):
    made = opened(make())
    made.write(numbered(1, 2))
    postgres.execute(f"INSERT INTO {table} VALUES (3, 'x', 'q', 'r1', 3, 3)")
    with pytest.raises(SinkError, match="duplicate key value"):
        made.write(numbered(3, 2))
    assert [row["a"] for row in rows(postgres, table)] == [1, 2, 3]


def test_a_trigger_that_takes_rows_away_is_an_error(postgres, table, make):
    made = opened(make())
    postgres.execute(
        f"CREATE FUNCTION drop_{table}() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF new.a = 2 THEN RETURN NULL; END IF; RETURN new; END $$"
    )
    postgres.execute(
        f"CREATE TRIGGER t BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION drop_{table}()"
    )
    with pytest.raises(SinkError, match="took 2 of 3 rows"):
        made.write(numbered(1, 3))
    assert rows(postgres, table) == []


def test_a_table_that_somebody_has_locked(postgres, table, make):
    made = opened(make())
    made.write(numbered(1, 2))
    with psycopg.connect(postgres.url, application_name="somebody") as other:
        other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SinkAway, match=r"process \d+ \(somebody, idle in transaction") as away:
            made.write(numbered(3, 2))
        assert "lock timeout" in away.value.message
    made.write(numbered(3, 2))
    assert rows(postgres, table) == numbered(1, 4).to_pylist()


def test_a_server_that_forgot_what_it_had_committed(postgres, table, make):
    """As a replica that is promoted without the last second."""
    made = opened(make())
    made.write(numbered(1, 980))
    kept = postgres.execute(f"SELECT * FROM anabranch_sink WHERE target = '{table}'")
    made.write(numbered(981, 20))
    postgres.execute(f"DELETE FROM {table} WHERE _pos > 980")
    postgres.execute(
        f"UPDATE anabranch_sink SET position = %s WHERE target = '{table}'", kept[0][5]
    )
    with pytest.raises(SinkBehind, match="up to position 980, but those up to 1,000 were ackn"):
        made.write(numbered(1001, 5))
    again = make(resume=True)
    with pytest.raises(SinkBehind, match="20 rows are missing"):
        Continued(again).open(Beginning(after=1000))
    loss = Continued(again)
    loss.open(Beginning(after=1000, without=(981, 1000)))
    assert loss.holds(990, 15) == 11
    Continued(make(resume=True)).open(Beginning(after=1000))  # it is said once
    with pytest.raises(Fenced):
        again.write(numbered(1001, 5))
    opened(make(resume=True)).write(numbered(1001, 5))
    assert [row["a"] for row in rows(postgres, table)] == [*range(1, 981), *range(1001, 1006)]


STOPPED = """
import os, signal, sys
from pathlib import Path
from anabranch.connectors import SinkContext, make_sink
from anabranch.connectors.postgres.place import DatabaseTransaction
from anabranch.connectors.sink import Beginning
from anabranch.errors import Fenced
from tests.connectors.writing import COLUMNS, numbered, schema_of
from tests.connectors.reading import no_spark

url, table = sys.argv[1:]
note = DatabaseTransaction.note

def stopped(self, held):
    \"\"\"The rows are inserted and locked, and nothing is committed.\"\"\"
    DatabaseTransaction.note = note
    print("inserted", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    return note(self, held)

options = {"url": url, "table": table, "retry": "5s"}
sink = make_sink("postgres", SinkContext("q", schema_of(COLUMNS), options, Path(), no_spark, "r1"))
sink.open(Beginning(1))
sink.write(numbered(1, 10))
DatabaseTransaction.note = stopped
try:
    sink.write(numbered(11, 10))
    print("written", flush=True)
except Fenced:
    print("fenced", flush=True)
"""


def test_a_writer_that_stands_still_in_its_transaction_and_wakes_up_later(postgres, table, make):
    command = [sys.executable, "-c", STOPPED, postgres.url, table]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as old:
        try:
            assert old.stdout
            assert old.stdout.readline() == "inserted\n"
            began = time.monotonic()
            new = at(make(resume=True), 2)
            assert time.monotonic() - began < 5  # it does not wait for the one that stands still
            assert new.written() == 10
            new.write(numbered(11, 3))
            old.send_signal(signal.SIGCONT)
            assert old.stdout.readline() == "fenced\n"
        finally:
            old.kill()
    new.write(numbered(14, 2))
    assert rows(postgres, table) == numbered(1, 15).to_pylist()
