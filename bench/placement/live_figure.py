"""Re-placement for real, as a table and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
COLUMNS = ("near", "query at", "moves", "cost before", "after", "saved", "latency before", "after")


def cells(row: Row) -> tuple[str, ...]:
    before, after = row["cost_before"], row["cost_after"]
    return (
        row["near"],
        row["at"].get("fire", ""),
        str(len(row["moves"])),
        _number(before),
        _number(after),
        f"{1 - after / before:.0%}" if before and after else "–",
        _ms(row["latency_before_ms"]),
        _ms(row["latency_after_ms"]),
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} ms"


def summary(result: dict[str, Any]) -> Iterator[str]:
    still = "where it was placed" if result["pocket_stayed"] else "NOT where it was placed"
    yield f"The pocket is at {result['pocket']}, {still}."
    same = "the same" if result["identical"] else "NOT the same"
    results = ", ".join(f"{count} of {name}" for name, count in result["results"].items())
    yield f"{result['moved']} random moves under load: results ({results}) {same}"
    for problem in result["failed_moves"]:
        yield f"stayed: {problem}"
    if result["pause_ms"]:
        pause = result["pause_ms"]
        yield f"output paused: {pause['p50']:.0f} ms in the middle, {pause['max']:.0f} ms at most"


def _most(ages: Sequence[float]) -> float:
    """Of the axis: a few results that are much older than all others are cut off."""
    return 1.3e3 * sorted(ages)[int(0.99 * len(ages))] if ages else 1.0


def draw(result: dict[str, Any], folder: Path) -> Path:
    """Latency of every result over time; dashed where the network changes, dotted once operators
    have moved; below it the cost."""
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(8.0, 5.2), layout="constrained")
    above, below = figure.subplots(2, sharex=True, height_ratios=(3, 1))
    times, ages = zip(*result["latencies"], strict=True) if result["latencies"] else ((), ())
    above.plot(times, [1e3 * age for age in ages], ".", markersize=2)
    for row in result["rows"]:
        for axes in (above, below):
            axes.axvline(row["begun"] - result["begun"], ls="--", lw=1, color="tab:red")
            axes.axvline(row["replanned"] - result["begun"], ls=":", lw=1, color="tab:green")
    if result["costs"]:
        below.step(*zip(*result["costs"], strict=True), where="post")
    above.set(ylabel="age of a result at the centre [ms]", ylim=(0, _most(ages)))
    below.set(ylabel="Σ rate · latency²", xlabel="seconds", ylim=(0, None))
    path = folder / "replan.png"
    figure.savefig(path, dpi=120)
    return path
