"""Names of runs: each creation of a query has one, so that its output can be told from that of an
earlier query of the same name.
"""

from __future__ import annotations

ORDERED = "r"
"""What the name of a run begins with that says when it was begun; others say nothing of that."""


def run_name(begun_us: int, unique: str) -> str:
    """A name for a run. A run that was begun later has the greater name."""
    return f"{ORDERED}{begun_us:016x}{unique}"[:32]
