"""jsonl, csv and parquet: how values are written, and what happens when they cannot be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from textwrap import dedent

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from anabranch.connectors.files.paths import claim
from tests.connectors.reading import UTC_MICROS, message
from tests.connectors.writing import COLUMNS, numbered, sink, table_of

ROOT = Path(__file__).parents[3]
TYPES = {
    "i": pa.int32(),
    "d": pa.float64(),
    "n": pa.decimal128(10, 2),
    "big": pa.decimal128(38, 2),
    "s": pa.string(),
    "t": pa.bool_(),
    "day": pa.date32(),
    "at": UTC_MICROS,
    "naive": pa.timestamp("us"),
    "x": pa.binary(),
    "list": pa.list_(pa.float64()),
    "map": pa.map_(pa.string(), pa.date32()),
    "struct": pa.struct([("p", UTC_MICROS)]),
}
NOON = datetime(2026, 1, 31, 12)
VALUES = (
    1,
    0.1,
    Decimal("1.20"),
    Decimal("1.20"),
    'é"\\\n',
    True,
    date(2026, 1, 31),
    NOON.replace(tzinfo=UTC),
    NOON,
    b"\xff",
    [1.0, None, float("inf")],
    {"k": date(2026, 1, 31)},
    {"p": NOON.replace(tzinfo=UTC)},
)
EMPTY = (None,) * len(TYPES)


def written(name, tmp_path, tables, columns=COLUMNS, **options):
    made = sink(name, tmp_path, columns, path="out", **options)
    made.open()
    for table in tables:
        made.write(table)
    made.close()
    return (tmp_path / "out").read_text() if (tmp_path / "out").is_file() else None


def test_jsonl_values(tmp_path):
    first, second = written(
        "jsonl", tmp_path, [table_of(TYPES, [VALUES, EMPTY])], TYPES
    ).splitlines()
    assert first == (
        '{"i": 1, "d": 0.1, "n": 1.20, "big": "1.20", "s": "é\\"\\\\\\n", "t": true, '
        '"day": "2026-01-31", "at": "2026-01-31T12:00:00.000000Z", '
        '"naive": "2026-01-31T12:00:00.000000", "x": "/w==", "list": [1.0, null, "Infinity"], '
        '"map": {"k": "2026-01-31"}, "struct": {"p": "2026-01-31T12:00:00Z"}, '
        '"_pos": 1, "_ts": 1000}'
    )
    assert json.loads(second) == dict.fromkeys(TYPES) | {"_pos": 2, "_ts": 2000}


def test_jsonl_numbers_that_json_lacks(tmp_path):
    columns = {"d": pa.float64()}
    values = [float("nan"), float("inf"), float("-inf"), 1e300, 5e-324, -0.0, None]
    text = written("jsonl", tmp_path, [table_of(columns, [(v,) for v in values])], columns)
    read = [json.loads(line)["d"] for line in text.splitlines()]
    assert read == ["NaN", "Infinity", "-Infinity", 1e300, 5e-324, 0, None]


def test_jsonl_odd_column_names(tmp_path):
    columns = {'a "b"': pa.int64(), "é": pa.int64()}
    text = written("jsonl", tmp_path, [table_of(columns, [(1, 2)])], columns)
    assert text == '{"a \\"b\\"": 1, "é": 2, "_pos": 1, "_ts": 1000}\n'


def test_jsonl_is_fast(tmp_path):
    """The aim is 200 000 rows a second; a tenth of it leaves room for a busy machine."""
    columns = {
        "a": pa.int64(),
        "b": pa.float64(),
        "s": pa.string(),
        "t": pa.bool_(),
        "at": UTC_MICROS,
    }
    rows = [(i, i * 0.37, f"room {i % 7}", i % 2 == 0, i) for i in range(100_000)]
    table = table_of(columns, rows)
    made = sink("jsonl", tmp_path, columns, path="out")
    made.open()
    began = time.perf_counter()
    made.write(table)
    took = time.perf_counter() - began
    made.close()
    assert 100_000 / took > 20_000


def test_csv_values(tmp_path):
    text = written("csv", tmp_path, [table_of(TYPES, [VALUES, EMPTY])], TYPES)
    header, rest = text.split("\n", 1)
    assert header == ",".join(f'"{name}"' for name in [*TYPES, "_pos", "_ts"])
    assert rest == (
        '1,0.1,1.20,1.20,"é""\\\n",true,2026-01-31,2026-01-31 12:00:00.000000Z,'
        '2026-01-31 12:00:00.000000,"/w==","[1.0, null, ""Infinity""]",'
        '"{""k"": ""2026-01-31""}","{""p"": ""2026-01-31T12:00:00Z""}",1,"1000"\n'
        ',,,,,,,,,,,,,2,"2000"\n'
    )


def test_csv_without_header(tmp_path):
    assert written("csv", tmp_path, [numbered(1, 1)], header=False) == '1,"r1",1,"1000"\n'
    assert written("csv", tmp_path, [], header="true") == '"a","s","_pos","_ts"\n'


def listed(folder):
    """But for the record of how far it is."""
    return sorted({*os.listdir(folder)} - {".positions"})


def test_parquet_files(tmp_path):
    written("parquet", tmp_path, [numbered(1, 3), numbered(4, 4), numbered(8, 13)], rows_per_file=5)
    names = sorted(listed(tmp_path / "out"))
    assert names == [f"part-{first:020d}.parquet" for first in (1, 6, 11, 16)]
    counts = [parquet.read_metadata(tmp_path / "out" / name).num_rows for name in names]
    assert counts == [5, 5, 5, 5]


def test_parquet_gathers_small_tables_into_few_row_groups(tmp_path):
    written("parquet", tmp_path, [numbered(i, 10) for i in range(1, 1000, 10)])
    (file,) = (tmp_path / "out").glob("part-*")
    metadata = parquet.read_metadata(file)
    assert (metadata.num_rows, metadata.num_row_groups) == (1000, 1)


def test_parquet_stores_what_grows_as_differences(tmp_path):
    """And all else with dictionaries, nested columns too."""
    table = table_of(TYPES, [VALUES, EMPTY])
    written("parquet", tmp_path, [table], TYPES)
    (file,) = (tmp_path / "out").glob("part-*")
    group = parquet.read_metadata(file).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    encodings = {column.path_in_schema: set(column.encodings) for column in columns}
    grows = {"_pos", "_ts"}
    for path, found in encodings.items():
        assert ("DELTA_BINARY_PACKED" in found) == (path in grows), path
    assert "RLE_DICTIONARY" in encodings["s"] & encodings["struct.p"]
    assert parquet.read_table(file).select(["s", "struct"]).equals(table.select(["s", "struct"]))


def test_parquet_shows_whole_files_only(tmp_path):
    made = sink("parquet", tmp_path, path="out", rows_per_file=5)
    made.open()
    made.write(numbered(1, 7))
    made.write(numbered(8, 1))
    assert listed(tmp_path / "out") == ["part-00000000000000000001.parquet"]
    made.close()
    assert len(listed(tmp_path / "out")) == 2


def test_parquet_removes_what_an_earlier_run_left_and_nothing_else(tmp_path):
    (tmp_path / "out").mkdir()
    for name in ("part-00000000000000000009.parquet", ".part-00000000000000000001.parquet", "mine"):
        (tmp_path / "out" / name).write_text("x")
    claim(tmp_path / "out", "q")
    written("parquet", tmp_path, [])
    assert listed(tmp_path / "out") == ["mine"]


def values_of(folder):
    return [
        row["a"] for f in sorted(folder.glob("part-*")) for row in parquet.read_table(f).to_pylist()
    ]


def test_a_parquet_file_appears_with_its_last_row(tmp_path):
    made = sink("parquet", tmp_path, path="out", rows_per_file=2)
    made.open()
    made.write(numbered(1, 3))
    assert values_of(tmp_path / "out") == [1, 2]


def test_parquet_that_fails_can_be_tried_again(tmp_path):
    """What was taken stays, and nothing more is taken until the disk has it."""
    made = sink("parquet", tmp_path, path="out", rows_per_file=2)
    made.open()
    (tmp_path / "out").rename(tmp_path / "away")
    made.write(numbered(1, 3))
    for _ in range(2):
        assert "the folder does not exist" in message(lambda: made.write(numbered(4, 1)))
    (tmp_path / "away").rename(tmp_path / "out")
    made.write(numbered(4, 1))
    made.close()
    assert values_of(tmp_path / "out") == [1, 2, 3, 4]


def test_a_parquet_file_whose_name_is_taken_waits_for_it(tmp_path):
    made = sink("parquet", tmp_path, path="out", rows_per_file=200_000)
    made.open()
    made.write(numbered(1, 70_000))
    assert [name[0] for name in listed(tmp_path / "out")] == ["."]
    (tmp_path / "out" / f"part-{1:020d}.parquet").mkdir()  # its name is taken
    (tmp_path / "out" / f"part-{1:020d}.parquet" / "x").touch()
    assert "part-" in message(made.close)
    assert "part-" in message(made.close)
    (tmp_path / "out" / f"part-{1:020d}.parquet" / "x").unlink()
    (tmp_path / "out" / f"part-{1:020d}.parquet").rmdir()
    made.close()
    assert len(values_of(tmp_path / "out")) == 70_000


def test_parquet_that_begins_anew_leaves_its_unfinished_file(tmp_path):
    made = sink("parquet", tmp_path, path="out")
    made.open()
    made.write(numbered(1, 70_000))
    made.open()
    assert listed(tmp_path / "out") == []
    made.write(numbered(1, 3))
    made.close()
    assert values_of(tmp_path / "out") == [1, 2, 3]


def test_parquet_keeps_little_in_memory(tmp_path):
    """Rows of a file that is not whole yet are on the disk, not here."""
    made = sink("parquet", tmp_path, columns={"x": pa.float64()}, path="out")
    made.open()
    numbers = np.random.default_rng(1).random(100_000)
    arrow = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        for first in range(1, 1_000_000, 100_000):
            positions = np.arange(first, first + 100_000)
            made.write(pa.table({"x": numbers, "_pos": positions, "_ts": positions}))
        kept = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - arrow
    finally:
        tracemalloc.stop()
    made.close()
    (file,) = (tmp_path / "out").glob("part-*")
    assert kept < 5_000_000 < 10_000_000 < file.stat().st_size
    assert parquet.read_table(file)["_pos"].to_pylist() == list(range(1, 1_000_001))


@pytest.mark.parametrize("name", ["jsonl", "csv", "parquet"])
def test_a_place_that_cannot_be_written(name, tmp_path, monkeypatch):
    def line(path):
        return message(lambda: sink(name, tmp_path, path=path))

    assert line("no/x") == f"{tmp_path}/no: the folder does not exist. Run mkdir -p {tmp_path}/no."
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    if name == "parquet":
        assert line("file") == f"{tmp_path}/file: this is a file. Name a folder."
    else:
        assert line("folder") == f"{tmp_path}/folder: this is a folder. Name a file in it."
    # Root may write anywhere, so the answer is made up.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert line("x") == f"{tmp_path}/x: no permission to write. Choose another path."


def test_a_write_needs_an_open_file(tmp_path):
    made = sink("jsonl", tmp_path, path="out")
    assert message(lambda: made.write(numbered(1, 1))) == f"{tmp_path}/out: the file is not open"


def test_a_full_device(tmp_path):
    made = sink("jsonl", tmp_path, path="/dev/full")
    made.open()
    assert message(lambda: made.write(numbered(1, 1))) == ("/dev/full: disk full. Free some space.")
    made.close()


LIMITED = """
    import resource
    from pathlib import Path
    from anabranch.errors import SinkError
    from tests.connectors.writing import numbered, sink

    made = sink("{name}", Path("{base}"), path="out.{name}")
    made.open()
    made.write(numbered(1, 100))
    size = Path("{base}/out.{name}").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, size + 1000))
    for _ in range(2):
        try:
            made.write(numbered(101, 10_000))
        except SinkError as error:
            print(error.line())
        assert Path("{base}/out.{name}").stat().st_size == size
    made.write(numbered(101, 10))
    made.close()
"""


@pytest.mark.parametrize("name", ["jsonl", "csv"])
def test_a_write_that_only_half_fits_is_taken_back(name, tmp_path):
    """With a real limit: the first write is short, the second fails, the file is cut back."""
    script = dedent(LIMITED).format(name=name, base=tmp_path)
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(f"{tmp_path}/out.{name}: file too large. Free some space") == 2
    lines = (tmp_path / f"out.{name}").read_text().splitlines()
    assert len(lines) == 110 + (name == "csv")


SMALL_DISK = """
    from pathlib import Path
    from anabranch.errors import SinkError
    from tests.connectors.writing import numbered, sink

    base = Path("{base}")
    made = sink("{name}", base, path="out", **{options})
    made.open()
    rows = 0
    try:
        for first in range(1, 10_000_000, 20_000):
            made.write(numbered(first, 20_000))
            rows += 20_000
    except SinkError as error:
        print(error.line())
    try:
        made.close()
    except SinkError as error:
        assert "disk full" in error.line()
    print(rows)
    if (base / "out").is_file():
        print((base / "out").read_bytes().count(b"\\n"), (base / "out").read_bytes()[-1:])
    else:
        print(sorted(file.name[0] for file in (base / "out").iterdir()))
"""


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 2 MB, where this may be made."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    try:
        made = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        made = False
    if not made:
        pytest.skip("no permission to mount a file system")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(
    ("name", "options"),
    [("jsonl", {}), ("csv", {"header": False}), ("parquet", {"rows_per_file": 40_000})],
)
def test_a_disk_that_is_really_full(name, options, small_disk):
    script = dedent(SMALL_DISK).format(name=name, base=small_disk, options=options)
    path = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    error, rows, state = ran.stdout.splitlines()
    assert ": disk full. Free some space" in error
    if name == "parquet":
        assert {*json.loads(state.replace("'", '"'))} <= {"p", "."}
    else:
        assert state == f"{rows} b'\\n'"
