"""The placement experiment as pictures and as a table in Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures import markdown_table

Row = dict[str, Any]
COLUMNS = (
    "data",
    "plan",
    "method",
    "sites",
    "operators",
    "cost",
    "p95",
    "regret",
    "p95",
    "moves",
    "saved",
    "time",
)


def cells(row: Row) -> tuple[str, ...]:
    """A row for people, under `COLUMNS`: costs over the exact optimum, regret over one that knows
    the samples to come, moves per sample, what re-placement saves against never moving."""
    return (
        row["data"],
        row["graph"],
        row["method"],
        str(row["sites"]),
        str(row["operators"]),
        _number(row["cost_ratio"]),
        _number(row["cost_ratio_p95"]),
        _number(row["regret_median"]),
        _number(row["regret_p95"]),
        _number(row["moves_per_sample"]),
        "–" if row["saved"] is None else f"{row['saved']:.0%}",
        f"{row['seconds'] * 1e3:,.1f} ms",
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = [
        _bars(
            result,
            folder / "placement-cost.png",
            "cost_ratio",
            "cost over the exact optimum (median)",
        ),
        _bars(
            result,
            folder / "placement-regret.png",
            "regret_median",
            "regret over the following samples (median)",
        ),
        _time(result, folder / "placement-time.png"),
        folder / "placement.md",
    ]
    table = markdown_table(COLUMNS, map(cells, result["rows"]))
    written[-1].write_text("\n".join(["# Placement", "", *table]) + "\n", encoding="utf-8")
    return written


def _bars(result: dict[str, Any], path: Path, key: str, title: str) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.subplots()
    rows = [row for row in result["rows"] if row[key] is not None and row["sites"] < 1000]
    methods = list(dict.fromkeys(row["method"] for row in rows))
    groups = list(dict.fromkeys((row["data"], row["graph"]) for row in rows))
    for n, group in enumerate(groups):
        mine = {row["method"]: row[key] for row in rows if (row["data"], row["graph"]) == group}
        places = [i + (n - len(groups) / 2) * 0.2 for i in range(len(methods))]
        axes.bar(places, [mine.get(one, 0) for one in methods], 0.18, label=", ".join(group))
    axes.set(ylabel=title, yscale="log")
    axes.set_xticks(range(len(methods)), methods, rotation=20)
    axes.legend()
    axes.grid(alpha=0.3, axis="y")
    figure.savefig(path, dpi=120)
    return path


def _time(result: dict[str, Any], path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for graph in ("tree", "re-merging"):
        for method in ("best", "search", "sbon", "vote"):
            points = sorted(
                (row["sites"], row["seconds"])
                for row in result["rows"]
                if (row["graph"], row["method"]) == (graph, method)
            )
            style = "o-" if graph == "tree" else "s--"
            axes.plot(*zip(*points, strict=True), style, label=f"{method}, {graph}")
    axes.set(
        xlabel="sites (30 operators; at 1,000 sites 200)",
        ylabel="time [s]",
        xscale="log",
        yscale="log",
    )
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    return path
