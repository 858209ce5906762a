"""`python -m bench deadline`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anabranch.cli.show.tables import out, plain_table
from bench.commands.commands import measured


def experiment_deadline(
    json_file: Path | None, figures: Path | None, quick: bool, real: bool, scale: float | None
) -> None:
    from bench.deadline import experiment as deadline
    from bench.deadline import figures as deadline_figures
    from bench.figures import require

    if figures:
        require()
    result = measured(lambda progress: deadline.run(progress, quick, real, scale), json_file)
    _show(result)
    if figures:
        deadline_figures.draw(result, figures)
        out.print(f"Figures are in {figures}.")


def _show(result: dict[str, Any]) -> None:
    hand = [
        (
            name,
            f"{row['control']:.0f} ms",
            f"{row['warning']:.0f} ms",
            f"{row['information']:.0f} ms",
            "yes" if row["met"] else "no",
        )
        for name, row in result["hand"].items()
    ]
    out.print(plain_table(("hand example", "control", "warning", "information", "met"), hand))
    out.print()
    _show_rates("figure 7, simulated", result["figure7"])
    if result.get("real"):
        _show_rates(f"figure 7, real sites, times × {result['scale']:g}", result["real"])
        _show_busy(result)
    out.print(f"the queue, of an instance, with 10,000 waiting: {result['queue_s'] * 1e6:.1f} µs")
    mip = [
        (
            row["sites"],
            row["operators"],
            f"{row['tight']:g}",
            f"{row['seconds']:.2f} s",
            "–" if row["gap"] is None else f"{row['gap']:.1%}",
            "no plan" if row["misses"] is None else f"{row['misses']:.1%}",
        )
        for row in result["mip"]
    ]
    out.print(plain_table(("sites", "operators", "tightness", "time", "gap", "late"), mip))


def _show_busy(result: dict[str, Any]) -> None:
    edf, fifo = result["edf_misses"], result["fifo_misses"]
    out.print(
        f"one site, three queries, {result['load']:.0%} busy: late {edf:.2%} (EDF),"
        f" {fifo:.2%} (FIFO)"
    )
    rows = [
        (
            name,
            f"{one['shed']:.1%}",
            f"{one['late']:.2%}",
            f"{one['other_late']:.2%}",
            f"{one['worth']:.0%}",
        )
        for name, one in (
            ("shed", result["overload"]["shed"]),
            ("not shed", result["overload"]["not_shed"]),
        )
    ]
    columns = ("3 × too much", "shed", "late of the rest", "late of others", "worth, of the best")
    out.print(plain_table(columns, rows))
    out.print()


def _show_rates(title: str, rates: dict[str, dict[str, float]]) -> None:
    v2v = list(next(iter(rates.values())))
    rows = [(name, *(f"{points[one]:.1%}" for one in v2v)) for name, points in rates.items()]
    out.print(plain_table((title, *(f"{one} V2V" for one in v2v)), rows))
    out.print()
