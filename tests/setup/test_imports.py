"""What other packages do not declare as their interface is imported in one place each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "anabranch"


@pytest.mark.parametrize(
    ("private", "place"),
    [
        (
            r"pyspark\.(sql\.pandas|errors\.exceptions|cloudpickle|core|java_gateway)",
            "spark/inside.py",
        ),
        (r"from pyspark import cloudpickle", "spark/inside.py"),
        (r"sqlglot\.tokenizer_core", "language/grammar/lexer.py"),
    ],
)
def test_private_modules_have_one_place(private: str, place: str) -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(rf"^\s*(from|import) .*?{private}|^{private}", path.read_text(), re.M)
    }
    assert found == {place}
