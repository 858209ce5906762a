"""The walks name files and functions that are there, go in one direction, and are counted rightly.
The guide to changes names its places as exactly."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.docs.pages import PRODUCT, ROOT, Place, place_of

PAGE = (ROOT / "docs" / "walks.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
AT_MOST = {
    "A tuple": 16,
    "An ack": 12,
    "A take-over": 20,
    "CREATE QUERY with a deadline": 30,
    "A stage": 16,
    "An estimate": 16,
}
"""Files that a walk may have. One that needs more has too many doors."""
TOUCHED = 5
"""Files of the product that a change of one of the ten kinds may touch."""
_ROW = re.compile(r"^\| \[(.+)\]\(#.*\) \| (\d+) \| (\d+) \|$", re.MULTILINE)
_FOLDER = re.compile(r"^\*\*Folder:\*\* `([\w/]+)`$", re.MULTILINE)


@dataclass(frozen=True)
class Walk:
    title: str
    steps: list[Place]
    behind: list[Place]


def _places(text: str, *, numbered: bool) -> list[Place]:
    begin = r"\d+\. `" if numbered else "- `"
    return [place_of(line) for line in text.splitlines() if re.match(begin, line)]


def _walk(section: str) -> Walk:
    title, _, text = section.partition("\n")
    walk, behind = text.split("\nBehind the doors:\n")
    return Walk(title, _places(walk, numbered=True), _places(behind, numbered=False))


WALKS = [_walk(section) for section in PAGE.split("\n## ")[1:]]
CHANGES = GUIDE.split("\n## ")[1:]


def test_all_six_walks_are_there() -> None:
    assert [walk.title for walk in WALKS] == list(AT_MOST)


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.title)
def test_what_a_walk_names_is_there(walk: Walk) -> None:
    for place in (*walk.steps, *walk.behind):
        place.check()


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.title)
def test_a_walk_opens_each_file_once_and_not_too_many(walk: Walk) -> None:
    files = [place.file for place in (*walk.steps, *walk.behind)]
    assert len(set(files)) == len(files)
    assert [place.number for place in walk.steps] == [
        f"{number}." for number in range(1, len(walk.steps) + 1)
    ]
    assert len(walk.steps) <= AT_MOST[walk.title]


def test_the_table_counts_the_files() -> None:
    counted = [(walk.title, str(len(walk.steps)), str(len(walk.behind))) for walk in WALKS]
    assert _ROW.findall(PAGE) == counted


def test_ten_kinds_of_change_are_there() -> None:
    assert len(CHANGES) == 10


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.partition("\n")[0])
def test_a_change_has_a_folder_and_touches_few_files_that_are_there(change: str) -> None:
    (folder,) = _FOLDER.findall(change)
    places = _places(change, numbered=False)
    assert (PRODUCT / folder).is_dir()
    assert any(place.file.startswith(f"{folder}/") for place in places)
    assert 0 < len({place.file for place in places}) <= TOUCHED
    for place in places:
        place.check()
