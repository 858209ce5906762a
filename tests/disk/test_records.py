"""What a file of records holds after it was cut, torn or damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.disk.records import read_records, record
from anabranch.errors import CannotResume

payloads_of = st.lists(st.binary(max_size=20), min_size=1, max_size=6)


@given(payloads_of, st.data())
def test_a_file_that_is_cut_anywhere_holds_the_records_before_the_cut(
    payloads: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(map(record, payloads))
    cut = data.draw(st.integers(0, len(whole)))
    found = read_records(whole[:cut], "f")
    assert found.payloads == payloads[: len(found.payloads)]
    assert whole[: found.size] == b"".join(map(record, found.payloads))
    assert found.size <= cut
    assert (len(found.payloads) == len(payloads)) == (cut == len(whole))


@given(payloads_of, st.data())
def test_no_damage_is_read_as_something_else(payloads: list[bytes], data: st.DataObject) -> None:
    """In the last record it is a broken end; before that it is refused."""
    whole = bytearray(b"".join(map(record, payloads)))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    last = len(whole) - len(record(payloads[-1]))
    if at < last:
        with pytest.raises(CannotResume, match="f: the record at byte"):
            read_records(bytes(whole), "f")
    else:
        assert read_records(bytes(whole), "f").payloads == payloads[:-1]
