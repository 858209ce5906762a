"""The table of each paper's items on its page is made of one file, and every item names its test.

After a change of `docs/papers/items`, `REWRITE_PAPERS=1` with this test writes the tables anew.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAPERS = ROOT / "docs" / "papers"
FILES = sorted((PAPERS / "items").glob("*.toml"))
STATUSES = {"whole": "as in the paper", "other": "otherwise"}
BEGIN, END = "<!-- items -->", "<!-- end of items -->"
every = pytest.mark.parametrize("file", FILES, ids=lambda one: one.stem)


def items(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(file.read_text())["item"]
    return found


def table(file: Path) -> str:
    rows = [
        f"| {one['of']} | {STATUSES[one['status']]} | {one['how']} | `{one['test']}` |"
        for one in items(file)
    ]
    head = ["| in the paper | here | how | shown by |", "|---|---|---|---|"]
    return "\n".join([BEGIN, *head, *rows, END])


@every
def test_the_page_has_the_table(file: Path) -> None:
    page = PAPERS / tomllib.loads(file.read_text())["page"]
    text = page.read_text()
    whole = re.sub(f"{BEGIN}.*{END}", lambda _: table(file), text, flags=re.DOTALL)
    if os.environ.get("REWRITE_PAPERS"):
        page.write_text(whole)
    assert BEGIN in text
    assert whole == page.read_text(), "REWRITE_PAPERS=1 writes it anew"


@every
def test_every_item_has_a_status_a_sentence_and_a_test_that_is_there(file: Path) -> None:
    for one in items(file):
        assert one["status"] in STATUSES, one["of"]
        assert one["how"], one["of"]
        path, _, name = one["test"].partition("::")
        text = (ROOT / path).read_text()
        assert not name or f"def {name}(" in text, one["test"]
