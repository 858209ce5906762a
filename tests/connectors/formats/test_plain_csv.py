"""The quick way to read CSV gives what the strict reader gives, or leaves it to that."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch.connectors.files import read_csv
from anabranch.connectors.formats.plain_csv import filled_lines, is_plain, line_ends
from anabranch.errors import AnabranchError
from tests.connectors.reading import CheckedSource

COLUMNS = {
    "a": pa.int32(), "s": pa.string(), "x": pa.float64(), "t": pa.bool_(),
    "at": pa.timestamp("us", "UTC"), "d": pa.decimal128(5, 2), "f": pa.float32(),
}  # fmt: skip
HEADER = b"a,s,x,t,at,d,f,ts\n"
INTS = ["1", "-7", "+5", " 3", "007", "", "  ", "1.0", "0x1F", "99999999999", "1_0", "\t4 ", "a"]
TEXTS = ["", "x", "Ünï", " two ", '"quoted"', '"com,ma"', '"say ""hi"""', '""', '""""', "0xAB",
         "nul\0", "\ufeffb", "nan", "\u2028", "\x0b", "'"]  # fmt: skip
STRANGE = ['"two\nlines"', '"a\r\nb"', 'a"b', '"a"b', '"open', "c\rd", '"a""', '""b', '" "x']
REALS = [
    "0.5",
    "1e3",
    "nan",
    "-inf",
    "Infinity",
    ".5",
    "1.",
    "+2",
    "1e400",
    "0x1p3",
    "",
    " 7 ",
    "1,5",
]
TRUTHS = ["true", "0", "FALSE", "", "yes"]
TIMES = ["0", "12345", "2026-01-31T12:00:00Z", "1970-01-01", "+5", "-5", " 9 ", "", "noon", "0x10",
         "99999999999999999999"]  # fmt: skip
DECIMALS = ["1.25", "1", "", "1.255", "1e2"]
GOOD = ["1", "x", "0.5", "true", "12345", "1.25", "0.5", "12345"]
KINDS = [INTS, TEXTS, REALS, TRUTHS, TIMES, DECIMALS, REALS, TIMES]


def line(draw: random.Random, strange: float) -> str:
    """Mostly good fields; `strange` is how likely others are, and lines that are no rows."""
    if draw.random() < strange / 4:
        return draw.choice(["", "", " ", "1,2", ",".join(["1"] * 9), ",,,,,,,", '"'])
    fields = [draw.choice(kind) if draw.random() < strange else good
              for kind, good in zip(KINDS, GOOD, strict=True)]  # fmt: skip
    if draw.random() < strange:
        fields[1] = draw.choice(STRANGE)
    return ",".join(fields)


def content(seed: int) -> bytes:
    draw = random.Random(seed)
    strange = draw.choice([0.0, 0.02, 0.1, 0.4])
    end = draw.choice(["\n", "\n", "\r\n", "\r"]) if strange < 0.1 else "\n"
    lines = [line(draw, strange) for _ in range(draw.randrange(40))]
    text = end.join(lines) + draw.choice(["", end, end + end])
    data = (draw.choice(["", "\ufeff"]).encode() + HEADER) + text.encode()
    return data + (b"1,\xff,1,1,1,1,1,1\n" if draw.random() < strange else b"")


class Gave:
    """What a reading gave: tables with their marks, what was left out, and what it failed by."""

    def __init__(self, folder: Path, data: bytes, on_error: str, **more: Any) -> None:
        (folder / "x.csv").write_bytes(data)
        options = {"path": "x.csv", "on_error": on_error, "max_line": 300}
        source = CheckedSource("file", folder, options, COLUMNS, "ts", **more)
        self.tables: list[Any] = []
        self.failure = ""
        try:
            for table, mark in source.connector.read_from(source.connector.start_cursor()):
                self.tables.append((table.to_pydict(), table.schema, mark))
        except AnabranchError as error:
            self.failure = error.line()
        self.skipped = sum(source.skipped)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gave) and repr(vars(self)) == repr(vars(other))

    def __repr__(self) -> str:
        return repr(vars(self))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_csv, "BLOCK_ROWS", 7)
    monkeypatch.setattr(read_csv, "BLOCK_BYTES", 150)
    monkeypatch.setattr(read_csv, "_PIECE", 64)


def both(data: bytes, on_error: str, **more: Any) -> tuple[Gave, Gave]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        quick = Gave(Path(folder), data, on_error, **more)
        patch.setattr(read_csv, "is_plain", lambda *asked: False)
        return quick, Gave(Path(folder), data, on_error, **more)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 1 << 40),
    on_error=st.sampled_from(["fail", "skip"]),
    unit=st.sampled_from(["", "s", "ms", "us", "ns"]),
    begins=st.booleans(),
)
def test_quick_and_strict_give_the_same(seed: int, on_error: str, unit: str, begins: bool) -> None:
    quick, strict = both(content(seed), on_error, unit=unit, begins=begins)
    assert quick == strict


ROW = "1,{},0.5,true,12345,1.25,0.5,12345\n"


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(alphabet='"",,\n\r ax\0é', max_size=24), on_error=st.sampled_from(["fail", "skip"])
)
@example('"""', "skip")
@example('",', "skip")
@example('"",""', "skip")
def test_any_text_between_good_rows(text: str, on_error: str) -> None:
    data = HEADER + (ROW.format("a") + ROW.format(text) + ROW.format('"b"')).encode()
    quick, strict = both(data, on_error)
    assert quick == strict


@settings(max_examples=80, deadline=None)
@given(data=st.binary(max_size=60).map(lambda some: some.replace(b"1", b'"')))
def test_any_bytes(data: bytes) -> None:
    quick, strict = both(HEADER + data, "skip")
    assert quick == strict


def test_what_is_common_is_read_quickly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Quoted texts, \\r\\n, blank lines, times in ISO 8601: nothing of it is left to the other."""
    monkeypatch.setattr(read_csv, "_block", None)
    rows = [ROW.format(text) for text in TEXTS]
    rows.append('1,"a,b","0.5",true,2026-01-31T12:00:00Z,1.25,,"2026-01-31T12:00:00Z"\n')
    for end in ("\n", "\r\n", "\n\n"):
        text = "".join(rows).replace("\n", end)
        gave = Gave(tmp_path, HEADER + text.encode(), "fail")
        assert sum(len(table["a"]) for table, *_ in gave.tables) == len(TEXTS) + 1
        assert gave.failure == ""


def test_a_value_that_is_malformed_is_named_by_its_line(tmp_path: Path) -> None:
    good = ROW.format("a") * 20
    data = HEADER + (good + "\n\n" + ROW.format("b").replace("1,b", "one,b") + good).encode()
    gave = Gave(tmp_path, data, "fail")
    assert gave.failure.startswith(f"{tmp_path / 'x.csv'}:24: a is 'one', which is no INT. ")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (b"a,b\n", True),
        (b"a,b", True),
        (b"a\rb\n", False),
        (b'"a","b"\r\n"c"', True),
        (b'"a"b\n', False),
        (b'a"b"\n', False),
        (b'"a\nb"\n', False),
        (b'"a""b"\n', True),
        (b'"\n"\n', False),
        (b"a" * 11 + b"\n", False),
        (b"a\n" + b"b" * 11, False),
    ],
)
def test_what_is_plain(text: bytes, plain: bool) -> None:
    assert is_plain(text, line_ends(text), 10) == plain


@given(st.text(alphabet="a\n", max_size=12))
def test_lines_that_are_not_blank(text: str) -> None:
    expected = [number for number, one in enumerate(text.split("\n"), 1) if one]
    data = text.encode()
    assert list(filled_lines(data, line_ends(data))) == expected
    windows = data.replace(b"\n", b"\r\n")
    assert list(filled_lines(windows, line_ends(windows))) == expected


def test_line_ends() -> None:
    assert np.array_equal(line_ends(b"\na\n"), [0, 2])
