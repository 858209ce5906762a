"""Only what changed crosses the wire, and the viewer has the whole picture all the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from anabranch.face.snapshot import delta, patched

names = st.sampled_from("abcdef")
things = st.dictionaries(names, st.integers(0, 3)).map(
    lambda found: [{"name": name, "rate": rate} for name, rate in found.items()]
)
links = st.dictionaries(st.tuples(names, names), st.integers(0, 3)).map(
    lambda found: [{"sender": a, "receiver": b, "rate": rate} for (a, b), rate in found.items()]
)
pictures = st.fixed_dictionaries({"at": st.integers(), "sites": things, "links": links})


def unordered(picture: dict[str, Any]) -> dict[str, Any]:
    return {
        key: sorted(value, key=str) if isinstance(value, list) else value
        for key, value in picture.items()
    }


@given(pictures, pictures)
def test_a_patched_picture_is_the_new_one(before, after):
    assert unordered(patched(before, delta(before, after))) == unordered(after)


@given(pictures)
def test_nothing_changed(picture):
    assert delta(picture, picture) == {}
