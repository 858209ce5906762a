"""Pictures of trees: everything is in them, and nothing lies upon anything else."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.plan.picture import picture
from anabranch.plan.tree import Branch

SVG = "{http://www.w3.org/2000/svg}"
sites = st.sampled_from(["room1", "room2", "centre"])
texts = st.text("abc <&>'=_", max_size=120)


def branches() -> st.SearchStrategy[Branch]:
    notes = st.lists(texts, max_size=2).map(tuple)
    leaves = st.builds(Branch, texts, sites, notes=notes)
    return st.recursive(
        leaves,
        lambda inner: st.builds(
            Branch,
            texts,
            sites,
            st.lists(
                inner | st.builds(lambda one: Branch("link x", "a → b", (one,)), inner), max_size=3
            ).map(tuple),
        ),
        max_leaves=8,
    )


def boxes(svg: str) -> list[tuple[float, ...]]:
    rects = [one for one in ET.fromstring(svg).iter(f"{SVG}rect") if one.get("rx") == "6"]
    return [
        tuple(float(one.get(key, "")) for key in ("x", "y", "width", "height")) for one in rects
    ]


def count(branch: Branch) -> int:
    return sum(map(count, branch.inputs)) + (" → " not in branch.site)


@settings(max_examples=60, deadline=None)
@given(branches())
def test_no_two_boxes_overlap(tree: Branch) -> None:
    found = boxes(picture([("first", tree), ("second", tree)]))
    assert len(found) == 2 * count(tree)
    for n, (x, y, width, height) in enumerate(found):
        for other_x, other_y, other_width, other_height in found[:n]:
            apart_x = x >= other_x + other_width or other_x >= x + width
            apart_y = y >= other_y + other_height or other_y >= y + height
            assert apart_x or apart_y


def test_all_words_of_an_operator_are_there() -> None:
    tree = Branch("selection Temp > 50 AND a = 'x'  [hot]", "room1")
    texts = [one.text for one in ET.fromstring(picture([("hot", tree)])).iter(f"{SVG}text")]
    assert texts[:4] == ["hot", "selection", "Temp > 50 AND a = 'x'", "room1 · hot"]


def test_notes_are_in_the_box_of_their_operator() -> None:
    tree = Branch("selection a > 1  [hot]", "room1", notes=("standby: on room2, batch 100",))
    texts = [one.text for one in ET.fromstring(picture([("hot", tree)])).iter(f"{SVG}text")]
    assert texts[1:5] == ["selection", "a > 1", "standby: on room2, batch 100", "room1 · hot"]
