"""Names of runs: one for each creation of a query, so that what it writes can be told from what an
earlier query of the same name wrote."""

from __future__ import annotations

ORDERED = "r"
"""What the name of a run begins with that says when it was begun; others say nothing of that."""


def run_name(begun_us: int, unique: str) -> str:
    """Of two runs the one that was begun later has the greater name."""
    return f"{ORDERED}{begun_us:016x}{unique}"[:32]
