"""The stage benchmark as pictures, numbered as in the paper: throughput by skew and by keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures import require

__all__ = ["draw", "require"]

Row = dict[str, Any]


def draw(rows: list[Row], folder: Path) -> None:
    """By skew, figure 5 shows the rivals, which shuffle, figure 6 all; the third by the number of
    keys."""
    folder.mkdir(parents=True, exist_ok=True)
    cores = max(row["parallelism"] for row in rows)
    rows = [row for row in rows if row["parallelism"] == cores]
    most = max(row["keys"] for row in rows)
    for input in ("parquet", "text"):
        skewed = [row for row in rows if row["keys"] == most and row["input"] == input]
        rivals = [row for row in skewed if row["engine"].startswith(("spark", "flink", "shuffled"))]
        label = f"skew ({input}; 1.0: uniform)"
        _bars(rivals, "zipf", label, folder / f"05-shuffled-by-skew-{input}.svg")
        _bars(skewed, "zipf", label, folder / f"06-all-by-skew-{input}.svg")
    uniform = [row for row in rows if row["zipf"] == 1.0]
    for input in ("parquet", "text"):
        some = [row for row in uniform if row["input"] == input]
        _bars(some, "keys", f"keys ({input})", folder / f"keys-{input}.svg")


def _bars(rows: list[Row], by: str, label: str, file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for engine in dict.fromkeys(row["engine"] for row in rows):
        of = sorted((row for row in rows if row["engine"] == engine), key=lambda row: row[by])
        axes.plot(
            [str(row[by]) for row in of],
            [row["tuples_per_s"] / 1e6 for row in of],
            marker="o",
            label=engine,
        )
    axes.set_xlabel(label)
    axes.set_ylabel("million tuples a second")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(file)
