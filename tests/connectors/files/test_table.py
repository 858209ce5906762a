from __future__ import annotations

import os
import threading
import time

import pyarrow as pa
import pytest

from anabranch.connectors import TableContext, make_table
from tests.connectors.reading import message

COLUMNS = {"id": pa.int64(), "name": pa.string()}
SCHEMA = pa.schema(list(COLUMNS.items()))


@pytest.fixture
def make(tmp_path):
    def make(**options):
        given = {"path": "rooms.csv", "refresh": "20ms"} | options
        return make_table("file", TableContext("rooms", SCHEMA, given, tmp_path))

    return make


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "rooms.csv"
    file.write_text("id,name,more\n1,hall,x\n2,attic,y\n")
    return file


def test_content(make, file):
    found = make().read(threading.Event())
    assert found.schema == SCHEMA
    assert found.to_pylist() == [{"id": 1, "name": "hall"}, {"id": 2, "name": "attic"}]
    file.write_text("id,name\n")
    assert make().read(threading.Event()).equals(SCHEMA.empty_table())


def test_a_change_is_noticed(make, file):
    table, stopped = make(), threading.Event()
    assert table.wait(stopped, 0.0)  # not read yet
    table.read(threading.Event())
    assert not table.wait(stopped, 0.1)
    threading.Timer(0.2, file.write_text, ("id,name\n3,cellar\n",)).start()
    began = time.monotonic()
    assert table.wait(stopped, 10)
    assert time.monotonic() - began < 5
    assert table.read(threading.Event()).to_pylist() == [{"id": 3, "name": "cellar"}]
    assert not table.wait(stopped, 0.0)
    os.utime(file, ns=(1, 1))
    assert table.wait(stopped, 0.0)


def test_a_folder_that_gets_and_loses_files(make, file, tmp_path):
    table, stopped = make(path="."), threading.Event()
    assert len(table.read(threading.Event())) == 2
    (tmp_path / "more.csv").write_text("id,name\n9,roof\n")
    assert table.wait(stopped, 5)
    assert [row["id"] for row in table.read(threading.Event()).to_pylist()] == [9, 1, 2]
    file.unlink()
    assert table.wait(stopped, 5)
    assert [row["id"] for row in table.read(threading.Event()).to_pylist()] == [9]


def test_waiting_ends_when_stopped(make, file):
    table, stopped = make(refresh="1h"), threading.Event()
    table.read(threading.Event())
    threading.Timer(0.1, stopped.set).start()
    began = time.monotonic()
    assert not table.wait(stopped, 60)
    assert time.monotonic() - began < 5


def test_mistakes(make, file, tmp_path):
    assert message(lambda: make(path="nix.csv")).startswith(f"{tmp_path}/nix.csv: no such file")
    assert message(lambda: make(paht="x")) == "file() has no option 'paht'. Did you mean 'path'?"
    file.write_text("id,name\nx,hall\n")
    assert message(lambda: make().read(threading.Event())).startswith(
        f"{file}:2: id is 'x', which is no BIGINT"
    )
    context = TableContext("rooms", SCHEMA, {}, tmp_path)
    assert message(lambda: make_table("postgers", context)) == (
        "there is no table source 'postgers'. Did you mean 'postgres'?"
    )
