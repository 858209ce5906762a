"""The words of the code are plain: what a stranger would read twice does not come back."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"


def trees() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(SOURCES.rglob("*.py")):
        yield str(file.relative_to(SOURCES)), ast.parse(file.read_text(encoding="utf-8"))


def test_no_public_class_name_stands_for_two_things() -> None:
    places = defaultdict(list)
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
