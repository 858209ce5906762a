"""What all experiments that draw have in common."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from anabranch.errors import SetupError


def require() -> None:
    """Raises SetupError without matplotlib: before anything is measured."""
    if find_spec("matplotlib") is None:
        raise SetupError("figures need matplotlib", remedy="Install anabranch[bench].")


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
