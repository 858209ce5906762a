"""The standby experiment as pictures, numbered as in the paper, and as a table in Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.plan.service_levels import UNLIMITED
from bench.figures import markdown_table
from bench.standby.verdict import Row, of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curves = dict[str, dict[int, Row]]
OVERHEAD = ("overhead", "overhead: bytes to standby / to primary")
RECOVERY = ("recovery_s", "recovery time [s]")
THROUGHPUT = ("throughput", "throughput of the source [tuples/s]")
CPU = ("cpu", "CPU seconds a second, source and standby")


def figures(rows: list[Row]) -> dict[str, tuple[tuple[str, str], Curves]]:
    """File name → what is on its y axis, and its curves."""
    plain, packed, sums = of(rows), of(rows, compressed=True), of(rows, "aggregation")
    methods = {"SAS": plain, "SASC": packed}
    operators = {"selection": plain, "aggregation": sums}
    loads = {
        f"{load} MB/s" if load else "no load": of(rows, "aggregation", load)
        for load in sorted({row["load"] for row in rows})
    }
    return {
        "08-overhead": (OVERHEAD, {"SAS": plain}),
        "09-recovery": (RECOVERY, {"SAS": plain}),
        "10-throughput": (THROUGHPUT, {"SAS": plain}),
        "11-cpu": (CPU, {"SAS": plain}),
        "12-overhead-compressed": (OVERHEAD, methods),
        "13-recovery-compressed": (RECOVERY, methods),
        "14-cpu-compressed": (CPU, methods),
        "15-overhead-operators": (OVERHEAD, operators),
        "16-recovery-operators": (RECOVERY, operators),
        "17-overhead-loads": (OVERHEAD, loads),
        "18-recovery-loads": (RECOVERY, loads),
    }


def draw(result: dict[str, Any], folder: Path) -> list[Path]:
    """All figures and the table; the files written."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, ((key, title), curves) in figures(result["rows"]).items():
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        for label, curve in curves.items():
            _plot(axes, label, curve, key)
        axes.set(xlabel="batch size b", ylabel=title, ylim=(0, None))
        if axes.lines:
            axes.legend()
        axes.grid(alpha=0.3)
        written.append(folder / f"figure-{name}.png")
        figure.savefig(written[-1], dpi=120)
    written.append(folder / "standby.md")
    written[-1].write_text(markdown(result), encoding="utf-8")
    return written


def _plot(axes: Axes, label: str, curve: dict[int, Row], key: str) -> None:
    """Against b; what Upstream Backup has, and what the model says, as thin lines."""
    points = [
        (b, row[key])
        for b, row in sorted(curve.items())
        if b != UNLIMITED and row.get(key) is not None
    ]
    if not points:
        return
    (line,) = axes.plot(*zip(*points, strict=True), "o-", markersize=3, label=label)
    model = [
        (b, row[f"model_{key}"])
        for b, row in sorted(curve.items())
        if b != UNLIMITED and row.get(f"model_{key}") is not None
    ]
    if model:
        axes.plot(*zip(*model, strict=True), ":", color=line.get_color(), label=f"{label}, model")
    backup = curve.get(UNLIMITED, {}).get(key)
    if backup is not None:
        axes.axhline(
            backup,
            linestyle="--",
            linewidth=1,
            color=line.get_color(),
            label=f"{label}, b = ∞ (UB)",
        )


COLUMNS = (
    "scheme",
    "operator",
    "load",
    "b",
    "overhead",
    "model",
    "recovery",
    "model",
    "gap",
    "throughput",
    "CPU",
)


def cells(row: Row) -> tuple[str, ...]:
    """A row for people, under `COLUMNS`."""
    return (
        row["scheme"],
        row["operator"],
        f"{row['load']} MB/s" if row["load"] else "–",
        "∞" if row["b"] == UNLIMITED else str(row["b"]),
        f"{row['overhead']:.0%}",
        f"{row['model_overhead']:.0%}",
        _seconds(row.get("recovery_s")),
        _seconds(row.get("model_recovery_s")),
        _seconds(row.get("gap_s")),
        "–" if row.get("throughput") is None else f"{row['throughput']:,.0f}/s",
        _number(row["cpu"]),
    )


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"


def summary(result: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """What was measured beside the rows, one line each."""
    ours = ", ".join(f"b = {b}: {gap:.2f} s" for b, gap in result["gap_s"].items())
    yield "without output after a kill, ours", ours
    yield "without output after a kill, Spark", _seconds(result["spark_gap_s"])
    yield "Spark's over ours at b = 100", _number(result["spark_restart_ratio"])
    yield "model of overhead, mean and largest error", _both(result, "overhead", " points")
    yield "model of recovery, mean and largest error", _both(result, "recovery", "")
    yield "throughput with a standby over that without", _number(result["healthy_throughput_ratio"])
    yield "seconds in which the tuner kept both limits", _share(result["tuner_held"])
    for name, holds in result["shapes"].items():
        yield name.replace("_", " "), "yes" if holds else "no"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _both(result: dict[str, Any], what: str, unit: str) -> str:
    show = _share if not unit else _number
    mean, largest = (result[f"model_{what}_error{end}"] for end in ("", "_max"))
    return f"{show(mean)}, {show(largest)}{unit}"


def markdown(result: dict[str, Any]) -> str:
    lines = ["# Standby", "", *markdown_table(("", "measured"), summary(result)), ""]
    lines += markdown_table(COLUMNS, map(cells, result["rows"]))
    return "\n".join(lines) + "\n"
