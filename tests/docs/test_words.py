"""The words of the code are plain: what a stranger would read twice does not come back."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def trees() -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(SOURCES.rglob("*.py")):
        yield str(file.relative_to(SOURCES)), ast.parse(file.read_text(encoding="utf-8"))


def docstrings() -> Iterator[tuple[str, str]]:
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, Documented) and (text := ast.get_docstring(node)):
                yield f"{file}:{getattr(node, 'lineno', 1)}", text


@pytest.mark.parametrize("word", ["Of", "Behind", "Again"])
def test_no_docstring_begins_in_the_middle_of_a_sentence(word: str) -> None:
    assert [place for place, text in docstrings() if text.split()[0].rstrip(",.:") == word] == []


def test_no_public_class_name_stands_for_two_things() -> None:
    places = defaultdict(list)
    for file, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(file)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
