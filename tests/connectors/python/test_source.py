from __future__ import annotations

import threading
import time
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from textwrap import dedent

import numpy as np
import pyarrow as pa
import pytest

from anabranch.connectors.formats.columns import from_values
from anabranch.errors import ConfigError, SourceError
from tests.connectors.reading import UTC_MICROS, CheckedSource, message

COLUMNS = {"a": pa.int64(), "s": pa.string()}


def python(tmp_path, body, timestamp=None, columns=COLUMNS, name="feed", **options):
    (tmp_path / f"{name}.py").write_text(dedent(body))
    return CheckedSource(
        "python", tmp_path, {"function": f"{name}:rows"} | options, columns, timestamp
    )


def test_dicts_tuples_and_lists(tmp_path):
    source = python(
        tmp_path,
        """
        def rows():
            yield {"a": 1, "s": "x", "more": 0}
            yield (2, "y")
            yield [3, None]
            yield {"A": 4}
        """,
    )
    assert source.rows() == [
        {"a": 1, "s": "x"},
        {"a": 2, "s": "y"},
        {"a": 3, "s": None},
        {"a": 4, "s": None},
    ]


def test_event_time_by_key_or_last_in_a_tuple(tmp_path):
    body = """
        from datetime import datetime, timezone
        def rows():
            return [(1, "x", 5), {"a": 2, "ts": "1970-01-01T00:00:01Z"},
                    (3, "z", datetime(1970, 1, 1, tzinfo=timezone.utc))]
        """
    source = python(tmp_path, body, "ts")
    assert [row["_ts"] for row in source.rows()] == [5, 1_000_000, 0]
    declared = {"ts": pa.int64(), "s": pa.string()}
    source = python(tmp_path, "def rows(): return [(7, 'x')]", "ts", declared)
    assert source.rows() == [{"ts": 7, "s": "x", "_ts": 7}]


def test_arrow_and_rows_keep_their_order(tmp_path):
    source = python(
        tmp_path,
        """
        import pyarrow as pa
        def rows():
            yield (1, "row")
            yield pa.table({"s": ["t", "t"], "a": pa.array([2, 3], pa.int16()), "z": [0, 0]})
            yield pa.RecordBatch.from_pydict({"a": [4], "s": ["batch"]})
            yield (5, "row")
        """,
    )
    assert [row["a"] for row in source.rows()] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "result",
    [
        "pa.table({'a': range(200_000), 's': ['x'] * 200_000})",
        "pa.RecordBatch.from_pydict({'a': range(200_000), 's': ['x'] * 200_000})",
        "pa.table({'a': range(200_000), 's': ['x'] * 200_000}).to_reader()",
        "pa.table({'a': range(200_000), 's': ['x'] * 200_000}).to_pandas()",
    ],
)
def test_a_table_as_the_whole_result(tmp_path, result):
    source = python(tmp_path, f"import pyarrow as pa\ndef rows(): return {result}")
    tables = list(source.connector.read())
    assert max(table.num_rows for table in tables) <= 65_536
    assert pa.concat_tables(tables)["a"].to_pylist() == list(range(200_000))


def test_options_are_arguments(tmp_path):
    body = "def rows(first, count=1): return [(first + i, None) for i in range(count)]"
    source = python(tmp_path, body, first=10, count=2)
    assert [row["a"] for row in source.rows()] == [10, 11]
    assert message(python(tmp_path, body, fist=10).rows) == (
        "feed:rows: feed:rows raised TypeError: rows() got an unexpected keyword argument 'fist'"
    )


def test_a_slow_generator_does_not_hold_tuples_back(tmp_path):
    source = python(
        tmp_path,
        """
        import time
        def rows():
            yield (1, "now")
            yield (2, "now")
            time.sleep(30)
        """,
    )
    began = time.monotonic()
    tables = source.connector.read()
    rows = next(tables).to_pylist()
    if len(rows) < 2:
        rows += next(tables).to_pylist()
    assert [row["a"] for row in rows] == [1, 2]
    assert time.monotonic() - began < 10
    source.stopped.set()
    assert list(tables) == []
    assert time.monotonic() - began < 10


def test_an_endless_generator_waits_for_its_reader_and_is_closed(tmp_path):
    source = python(
        tmp_path,
        """
        made, closed = [], []
        def rows():
            try:
                while True:
                    made.append(1)
                    yield (len(made), None)
            finally:
                closed.append(1)
        """,
    )
    tables = source.connector.read()
    next(tables)
    time.sleep(0.3)
    state = source.connector._function.__globals__
    assert len(state["made"]) < 50_000
    tables.close()
    wait_until(lambda: state["closed"])


def wait_until(true, seconds=10):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_raising_function(tmp_path):
    source = python(
        tmp_path,
        """
        import json
        def rows():
            yield (1, "x")
            deeper()
        def deeper():
            json.loads("{")
        """,
    )
    tables = source.connector.read()
    assert next(tables).num_rows == 1
    with pytest.raises(SourceError) as caught:
        next(tables)
    assert caught.value.line().startswith(
        f"{tmp_path}/feed.py:7: feed:rows raised json.decoder.JSONDecodeError: Expecting property"
    )


def test_a_result_that_is_no_rows(tmp_path):
    line = message(python(tmp_path, "def rows(): return 5").rows)
    assert line == "feed:rows: feed:rows raised TypeError: 'int' object is not iterable"


def test_malformed_rows(tmp_path):
    body = "def rows(): return [(1, 'x'), (2,), {'a': 'x'}, 'abc', (True, 'x'), (6, 'y')]"
    source = python(tmp_path, body, on_error="skip")
    assert [row["a"] for row in source.rows()] == [1, 6]
    assert sum(source.skipped) == 4
    assert message(python(tmp_path, body).rows) == (
        "feed:rows, row 2: the row has 1 values for 2 fields (a, s). "
        "Fix the function or set on_error = 'skip'."
    )
    line = message(python(tmp_path, "def rows(): return ['abc']").rows)
    assert "row 1: the row is a str, not a dict, a tuple or an Arrow table" in line
    line = message(python(tmp_path, "def rows(): return [(1, 'x'), (1.5, 'x')]").rows)
    assert "row 2: a is 1.5, which is no BIGINT" in line


def test_tables_without_a_column(tmp_path):
    body = "import pyarrow as pa\ndef rows(): return pa.table({'a': [1]})"
    assert "feed:rows: the column s is missing; there is a" in message(python(tmp_path, body).rows)


def test_modules_beside_the_script(tmp_path):
    (tmp_path / "neighbour.py").write_text("VALUE = 7")
    body = "import neighbour\ndef rows(): return [(neighbour.VALUE, None)]"
    assert python(tmp_path, body).rows() == [{"a": 7, "s": None}]
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "inner.py").write_text("def rows(): return [(8, None)]")
    source = CheckedSource("python", tmp_path, {"function": "pack.inner:rows"}, COLUMNS)
    assert source.rows() == [{"a": 8, "s": None}]


def test_an_edited_module_counts(tmp_path):
    for value in (1, 2):
        source = python(tmp_path, f"def rows(): return [({value}, None)]  #{'x' * value}")
        assert source.rows()[0]["a"] == value


@pytest.mark.parametrize(
    ("function", "complaint"),
    [
        ("feed", "'feed' names no function. Write it as 'module:function'."),
        (
            "feed:lines",
            "the module feed has no function 'lines'. Write it as 'module:function'.",
        ),
    ],
)
def test_wrong_names(tmp_path, function, complaint):
    assert message(lambda: python(tmp_path, "rows = 5", function=function)) == complaint


def test_missing_and_broken_modules(tmp_path):
    def line(name):
        return message(lambda: CheckedSource("python", tmp_path, {"function": name}, COLUMNS))

    assert line("no_such:rows") == (
        "there is no Python module 'no_such'. "
        f"It must lie in {tmp_path} or be installed where the site runs."
    )
    (tmp_path / "needy.py").write_text("\nimport no_such_package\n")
    assert line("needy:rows") == (
        f"{tmp_path}/needy.py:2: importing needy failed: "
        "ModuleNotFoundError: No module named 'no_such_package'"
    )
    (tmp_path / "garbled.py").write_text("x = 1\ndef rows(:\n")
    assert line("garbled:rows").startswith(f"{tmp_path}/garbled.py:2: importing garbled failed")


def test_function_is_required(tmp_path):
    with pytest.raises(ConfigError, match="needs the option 'function'"):
        CheckedSource("python", tmp_path, {}, COLUMNS)


def test_reading_ends_the_thread(tmp_path):
    source = python(tmp_path, "def rows(): return [(1, 'x')]")
    before = {*threading.enumerate()}
    source.rows()
    wait_until(lambda: {*threading.enumerate()} <= before)


@pytest.mark.parametrize(
    ("value", "type", "expected"),
    [
        (np.int64(5), pa.int32(), 5),
        (np.float32(0.5), pa.float64(), 0.5),
        (Decimal("2"), pa.int64(), 2),
        (Decimal("2.5"), pa.float64(), 2.5),
        (np.bool_(True), pa.bool_(), True),
        (1, pa.bool_(), True),
        ("False", pa.bool_(), False),
        (0.1, pa.decimal128(4, 2), Decimal("0.10")),
        ("x", pa.binary(), b"x"),
        (bytearray(b"x"), pa.binary(), b"x"),
        (datetime(2026, 1, 31, 5), pa.date32(), date(2026, 1, 31)),
        (datetime(1970, 1, 1, 0, 0, 1), None, 1_000_000),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), None, 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), None, -1),
        (np.datetime64(1_000, "ns"), None, 1),
        (date(1970, 1, 2), None, 86_400_000_000),
        (np.array([1, 2]), pa.list_(pa.int32()), [1, 2]),
    ],
)
def test_values_of_other_classes(value, type, expected):
    assert from_values([None, value], type).to_pylist() == [None, expected]


def test_the_last_microsecond_is_kept():
    late = datetime(2200, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert from_values([late], UTC_MICROS).to_pylist() == [late]
