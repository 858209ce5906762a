"""CSV texts of one row each, as in records of a topic."""

from __future__ import annotations

import pytest

from anabranch.connectors.formats.rows import csv_block


def rows(*texts: str | bytes) -> tuple[list[list[str]], dict[int, str]]:
    given = [text.encode() if isinstance(text, str) else text for text in texts]
    block = csv_block([*enumerate(given)], [0, 1], "record")
    return [list(column) for column in block.columns], block.malformed


def test_columns_in_the_order_that_is_asked_for() -> None:
    block = csv_block([(7, b"1,2,3"), (9, b'4,"5,5",6\r\n')], [2, 0, 2], "record")
    assert [list(column) for column in block.columns] == [["3", "6"], ["1", "4"], ["3", "6"]]
    assert list(block.numbers) == [7, 9]


@pytest.mark.parametrize("text", ["a\u2028b", "a\x0bb", "a\x1cb", "a\x85b", "k" * 200_000])
def test_text_is_what_stands_there(text: str) -> None:
    """Also where Python would end a line."""
    assert rows(f"{text},1") == ([[text], ["1"]], {})


def test_a_blank_text_is_no_row_and_others_are_malformed() -> None:
    good, malformed = rows("", "\r\n", "1,2", "1", "1,2\n3,4", '"1', '"1"2,3', '"a\nb",c')
    assert good == [["1", "a\nb"], ["2", "c"]]
    assert malformed == {
        3: "the record has 1 fields where the stream has 2",
        4: "the record holds 2 lines",
        5: "a quoted field is never closed",
        6: "malformed CSV: ',' expected after '\"'",
    }
