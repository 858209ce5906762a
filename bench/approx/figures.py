"""The approx experiment as the paper's figures 10 to 13, and as tables."""

from __future__ import annotations

from pathlib import Path

from bench.approx.experiment import AT_EPSILON, AT_WORKERS, FULL, SYNTHETIC, Row

COLUMNS = (
    "data",
    "model",
    "workers",
    "ε",
    "method",
    "estimable",
    "error",
    "worst key",
    "worst lag",
    "bound",
    "assign",
)
FIGURES = {
    "10-estimable-by-workers": ("workers", "estimable", "estimable workers"),
    "11-estimable-by-epsilon": ("epsilon", "estimable", "estimable workers"),
    "12-error-by-workers": ("workers", "error", "error rate"),
    "13-error-by-epsilon": ("epsilon", "error", "error rate"),
}


def cells(row: Row) -> tuple[str, ...]:
    def share(name: str) -> str:
        value = row.get(name)
        return "–" if value is None else f"{value:.2%}"

    bound = row.get("bound")
    return (
        row["data"],
        row["model"],
        str(row["workers"]),
        f"{row['epsilon']:g}",
        row["method"],
        f"{row['estimable']} of {row['workers']}",
        share("error"),
        share("worst_key_error"),
        share("worst_lag_error"),
        "–" if bound is None else f"±{bound:.2f}",
        f"{row['assign_s']:.2f} s",
    )


def draw(rows: list[Row], folder: Path) -> list[Path]:
    """One curve a method: of the synthetic data, and of each of the others by the full model. The
    files written; none of a figure that would have a single point a curve."""
    folder.mkdir(parents=True, exist_ok=True)
    judged = [row for row in rows if row["model"] in ("known", FULL)]
    written = []
    for data in dict.fromkeys(row["data"] for row in judged):
        mine = [row for row in judged if row["data"] == data]
        for name, (x, y, title) in FIGURES.items():
            curves = _curves(mine, x, y)
            if any(len(points) > 1 for points in curves.values()):
                part = "" if data == SYNTHETIC else f"{data}-"
                written.append(folder / f"approx-{part}{name}.png")
                _draw_one(curves, "workers" if x == "workers" else "ε", title, written[-1])
    return written


def _curves(rows: list[Row], x: str, y: str) -> dict[str, list[tuple[float, float]]]:
    """By method, of one set of data. What is not on the axis is as in the paper, or what the first
    of the rows has."""
    other, usual = ("epsilon", AT_EPSILON) if x == "workers" else ("workers", AT_WORKERS)
    fixed = usual if rows[0]["data"] == SYNTHETIC else rows[0][other]
    curves: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda row: row[x]):
        if row[other] == fixed and row[y] is not None:
            curves.setdefault(row["method"], []).append((row[x], row[y]))
    return curves


def _draw_one(
    curves: dict[str, list[tuple[float, float]]], xlabel: str, ylabel: str, file: Path
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    for method, points in curves.items():
        axes.plot(*zip(*points, strict=True), "o-", markersize=3, label=method)
    axes.set(xlabel=xlabel, ylabel=ylabel, ylim=(0, None))
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=120)
