"""Every promise of the page of guarantees names a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)


def named() -> set[str]:
    return set(NAMED.findall((ROOT / "docs/guarantees.md").read_text()))


def test_each_test_that_is_named_is_there() -> None:
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in DEFINED.findall(path.read_text())
    }
    assert len(named()) > 50
    assert sorted(named() - defined) == []
