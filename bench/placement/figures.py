"""The placement experiment as pictures and as a table in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures import markdown_table

Row = dict[str, Any]
COLUMNS = (
    "data",
    "rates",
    "plan",
    "method",
    "cost",
    "p95",
    "to the best that never moves",
    "to vote",
    "pockets",
    "p95",
    "moves",
    "time",
)
VARIED = ("k", "i", "method", "cost", "pockets")
LARGE = ("plan", "method", "sites", "operators", "cost", "time")


def cells(row: Row) -> tuple[str, ...]:
    """A row for people, under `COLUMNS`: costs over those of somebody who knows the samples to come
    and moves operators for nothing, medians; what pockets cost over the best sites in hindsight;
    moves per sample; the time of the first placement."""
    return (
        row["data"],
        row["rates"],
        row["plan"],
        row["method"],
        *(_number(row[key]) for key in ("cost", "cost_p95", "to_fixed", "to_vote")),
        *(_number(row[key]) for key in ("pocket_regret", "pocket_regret_p95")),
        _number(row["moves_per_sample"]),
        f"{row['seconds'] * 1e3:,.0f} ms",
    )


def varied_cells(row: Row) -> tuple[str, ...]:
    costs = (_number(row[key]) for key in ("cost", "pocket_regret"))
    return (str(row["k"]), str(row["i"]), row["method"], *costs)


def large_cells(row: Row) -> tuple[str, ...]:
    size = (f"{row['sites']:,}", str(row["operators"]))
    return (row["plan"], row["method"], *size, _number(row["cost"]), f"{row['seconds']:.2f} s")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = [
        _bars(result, folder / "placement-cost.png", "cost", "cost over the clairvoyant (median)"),
        _bars(result, folder / "placement-pockets.png", "pocket_regret", "pockets, in hindsight"),
        folder / "placement.md",
    ]
    tables = [
        *markdown_table(COLUMNS, map(cells, result["rows"])),
        "",
        *markdown_table(VARIED, map(varied_cells, result["varied"])),
        "",
        *markdown_table(LARGE, map(large_cells, result["large"])),
    ]
    written[-1].write_text("\n".join(["# Placement", "", *tables]) + "\n", encoding="utf-8")
    return written


def _bars(result: dict[str, Any], path: Path, key: str, title: str) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    axes = figure.subplots()
    rows = [row for row in result["rows"] if row[key] is not None]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    groups = list(dict.fromkeys((row["data"], row["rates"], row["plan"]) for row in rows))
    width = 0.8 / len(groups)
    for n, group in enumerate(groups):
        values = {
            row["method"]: row[key]
            for row in rows
            if (row["data"], row["rates"], row["plan"]) == group
        }
        places = [i + (n - len(groups) / 2) * width for i in range(len(methods))]
        axes.bar(places, [values.get(one, 0) for one in methods], width, label=", ".join(group))
    axes.set(ylabel=title, yscale="log")
    axes.set_xticks(range(len(methods)), methods, rotation=20)
    axes.legend(fontsize="x-small", ncols=2)
    axes.grid(alpha=0.3, axis="y")
    figure.savefig(path, dpi=120)
    return path
