"""Tables of a real PostgreSQL."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import uuid4

import pyarrow as pa
import pytest

from anabranch.connectors import TableContext, make_table
from anabranch.errors import SourceAway
from bench.systems.server_process import free_port
from tests.connectors.reading import UTC_MICROS, message

COLUMNS = {"id": pa.int64(), "name": pa.string()}


@pytest.fixture
def rooms(postgres):
    name = f"rooms_{uuid4().hex[:8]}"
    postgres.execute(f"CREATE TABLE {name} (id integer, name text, more text)")
    postgres.execute(f"INSERT INTO {name} VALUES (1, 'hall', 'x'), (2, NULL, 'y')")
    return name


@pytest.fixture
def make(postgres, tmp_path):
    made = []

    def make(columns=COLUMNS, **options):
        schema = pa.schema(list(columns.items()))
        context = TableContext("rooms", schema, {"url": postgres.url} | options, tmp_path)
        made.append(make_table("postgres", context))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_content(make, rooms, postgres):
    found = make(table=rooms).read(threading.Event())
    assert found.schema == pa.schema(list(COLUMNS.items()))
    assert found.to_pylist() == [{"id": 1, "name": "hall"}, {"id": 2, "name": None}]
    query = f"SELECT id * 10 AS id, upper(name) AS name FROM {rooms} WHERE id < 2;"
    assert make(query=query).read(threading.Event()).to_pylist() == [{"id": 10, "name": "HALL"}]
    postgres.execute(f"DELETE FROM {rooms}")
    assert make(table=rooms).read(threading.Event()).equals(found.schema.empty_table())


def test_many_rows(make):
    query = "SELECT n AS id, 'r' || n AS name FROM generate_series(1, 50000) AS n"
    assert make(query=query).read(threading.Event()).column("id").to_pylist() == [*range(1, 50_001)]


def test_every_type(make):
    moment = datetime(2026, 1, 31, 12, 0, 0, 5, UTC)
    values = {
        "t": (pa.bool_(), "true", True),
        "i": (pa.int32(), "7::smallint", 7),
        "n": (pa.int64(), "7::numeric", 7),
        "d": (pa.float64(), "0.5::real", 0.5),
        "m": (pa.decimal128(10, 2), "1.5::numeric(5,1)", Decimal("1.50")),
        "s": (pa.string(), "'x'::varchar", "x"),
        "u": (
            pa.string(),
            "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        ),
        "x": (pa.binary(), r"'\x00ff'::bytea", b"\x00\xff"),
        "day": (pa.date32(), "'2026-01-31'::date", date(2026, 1, 31)),
        "at": (UTC_MICROS, "'2026-01-31 13:00:00.000005+01'::timestamptz", moment),
        "ntz": (
            pa.timestamp("us"),
            "'2026-01-31 12:00:00.000005'::timestamp",
            moment.replace(tzinfo=None),
        ),
        "l": (pa.list_(pa.int64()), "ARRAY[1, NULL]", [1, None]),
        "j": (
            pa.struct([("p", pa.string()), ("q", pa.list_(pa.float64()))]),
            """'{"p": "x", "q": [0.5]}'::jsonb""",
            {"p": "x", "q": [0.5]},
        ),
        "map": (pa.map_(pa.string(), pa.int64()), """'{"k": 1}'::jsonb""", [("k", 1)]),
    }
    select = ", ".join(f'{text} AS "{name}"' for name, (_, text, _) in values.items())
    columns = {name: type for name, (type, _, _) in values.items()}
    found = make(columns, query=f"SELECT {select}").read(threading.Event())
    assert found.to_pylist() == [{name: value for name, (_, _, value) in values.items()}]


def test_nothing_is_rounded(make, postgres):
    place = postgres.url.partition("@")[2]
    half = make({"id": pa.int64()}, query="SELECT 1.5 AS id")
    assert message(lambda: half.read(threading.Event())) == (
        f"{place}, row 1: id is Decimal('1.5'), which is no BIGINT. "
        "Change the declared type or the value."
    )


def test_refresh(make, rooms):
    table, stopped = make(table=rooms, refresh="300ms"), threading.Event()
    assert table.wait(stopped, 0)  # not read yet
    table.read(threading.Event())
    assert not table.wait(stopped, 0.05)
    began = time.monotonic()
    assert table.wait(stopped, 10)
    assert time.monotonic() - began < 2


def test_notify(make, rooms, postgres):
    channel = f"Changed {rooms}"
    table, stopped = make(table=rooms, notify=channel), threading.Event()
    assert len(table.read(threading.Event())) == 2
    assert not table.wait(stopped, 0.1)
    postgres.execute(f"INSERT INTO {rooms} VALUES (3, 'attic', '')")
    postgres.execute(f'NOTIFY "{channel}"')  # while nobody waits
    assert table.wait(stopped, 10)
    assert len(table.read(threading.Event())) == 3
    assert not table.wait(stopped, 0.1)
    threading.Timer(0.3, postgres.execute, (f'NOTIFY "{channel}"',)).start()
    began = time.monotonic()
    assert table.wait(stopped, 10)
    assert time.monotonic() - began < 5
    table.read(threading.Event())
    postgres.drop_connections()
    assert table.wait(stopped, 10)  # one may have been missed
    assert len(table.read(threading.Event())) == 3
    assert not table.wait(stopped, 0.1)


def test_after_a_restart_the_server_need_not_be_there(tmp_path):
    """It is waited for when it is read; a table that is created is refused at once."""
    nowhere = f"127.0.0.1:{free_port()}"
    options = {"url": f"postgresql://me:secret@{nowhere}/db", "table": "t"}
    context = TableContext("rooms", pa.schema(list(COLUMNS.items())), options, tmp_path)
    with pytest.raises(SourceAway, match="Connection refused"):
        make_table("postgres", context)
    table = make_table("postgres", replace(context, resume=True))
    with pytest.raises(SourceAway, match="Connection refused"):
        table.read(threading.Event())
    table.close()


def test_mistakes(make, rooms, postgres):
    place = postgres.url.partition("@")[2]
    assert message(make) == (
        "postgres() needs either a table or a query. Write postgres(table = …)."
    )
    assert message(lambda: make(table="nix")) == (
        f'{place}: relation "nix" does not exist. Check the table and the declared columns.'
    )
    assert message(lambda: make({"nam": pa.string()}, table=rooms)) == (
        f'{place}: column "nam" does not exist (Perhaps you meant to reference the column '
        '"t.name"). Check the table and the declared columns.'
    )
    nowhere = f"127.0.0.1:{free_port()}"
    assert message(lambda: make(url=f"postgresql://me:secret@{nowhere}/db", table="t")) == (
        f"{nowhere}/db: Connection refused. Check the url, and that the server runs."
    )
