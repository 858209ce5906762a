"""What the rows of the standby experiment say: ratios, the model's errors, the paper's shapes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from statistics import fmean
from typing import Any

from anabranch.plan.service_levels import UNLIMITED

Row = dict[str, Any]


def result(
    rows: list[Row], spark: dict[str, Any], rates: dict[str, Any], steps: dict[str, Any]
) -> dict[str, Any]:
    """Everything that is written as JSON."""
    speeds = rates["tuples_per_s"]
    rows = [row | _throughput(row, speeds) for row in rows]
    return {
        "rows": rows,
        **gaps(rows, spark),
        **errors(rows),
        "healthy_throughput_ratio": rates["healthy_throughput_ratio"],
        "tuner_held": steps["tuner_held"],
        "shapes": shapes(rows),
        "throughput": rates,
        "steps": steps,
    }


def _throughput(row: Row, speeds: dict[str, float]) -> Row:
    if row["operator"] != "selection" or row["load"]:
        return {"throughput": None}
    return {"throughput": speeds.get(f"{row['b']}{'C' if row['compressed'] else ''}")}


def of(
    rows: Iterable[Row], operator: str = "selection", load: int = 0, compressed: bool = False
) -> dict[int, Row]:
    """One curve: b → its row."""
    wanted = (operator, load, compressed)
    return {
        row["b"]: row for row in rows if (row["operator"], row["load"], row["compressed"]) == wanted
    }


def gaps(rows: list[Row], spark: dict[str, Any]) -> dict[str, Any]:
    """Seconds without output after a kill, ours and Spark's."""
    plain = of(rows)
    names = {"1": 1, "100": 100, "UNLIMITED": UNLIMITED}
    ours = {name: plain[b]["gap_s"] for name, b in names.items() if "gap_s" in plain.get(b, {})}
    theirs = spark["spark_gap_s"]
    ratio = theirs / ours["100"] if ours.get("100") else None
    return {"spark_restart_ratio": ratio, "spark_gap_s": theirs, "gap_s": ours}


def errors(rows: list[Row]) -> dict[str, Any]:
    """Of overhead in points, of recovery as a share of what was measured: the mean over a row's
    kills, since when in a heartbeat's interval a kill falls is chance."""
    points = [100 * abs(row["model_overhead"] - row["overhead"]) for row in rows]
    killed = [row for row in rows if "recovery_s" in row]
    shares = [abs(r["model_recovery_s"] - r["recovery_s"]) / r["recovery_s"] for r in killed]
    biases = [r["model_recovery_s"] / r["recovery_s"] - 1 for r in killed]
    return {
        "model_overhead_error": fmean(points),
        "model_overhead_error_max": max(points),
        "model_recovery_error": fmean(shares) if shares else None,
        "model_recovery_error_max": max(shares, default=None),
        "model_recovery_bias": fmean(biases) if biases else None,
    }


def shapes(rows: list[Row]) -> dict[str, bool]:
    """What the paper's figures show, here."""
    plain, packed = of(rows), of(rows, compressed=True)
    sums = of(rows, "aggregation")
    busy = of(rows, "aggregation", load=max(row["load"] for row in rows))
    pairs = [
        (plain[b]["overhead"], packed[b]["overhead"] / _ratio(packed[b]))
        for b in plain
        if b in packed
    ]
    return {
        "active_standby_ships_everything": all(
            abs(row["overhead"] - _ratio(row)) < 0.05 for row in rows if row["b"] == 1
        ),
        "nothing_shipped_beyond_prediction": all(
            row["overhead"] < 0.02 for row in rows if row["b"] >= 1.1 * row["zero_from"]
        ),
        "compression_saves_its_ratio": bool(pairs) and fmean(abs(a - b) for a, b in pairs) < 0.1,
        "recovery_grows_with_batch": _rising(plain),
        "aggregation_recovers_slower": _longer(plain, sums),
        "load_makes_recovery_slower": _longer(sums, busy),
    }


def _ratio(row: Row) -> float:
    return float(row["ratio"]) or 1.0


def _rising(curve: dict[int, Row]) -> bool:
    """From each batch size with kills to the next; a tenth less counts as the same."""
    found = [row["recovery_s"] for _, row in sorted(curve.items()) if "recovery_s" in row]
    return len(found) > 1 and all(b > 0.9 * a for a, b in pairwise(found))


def _longer(short: dict[int, Row], long: dict[int, Row]) -> bool:
    """On average over the batch sizes with kills in both."""
    found = [
        long[b]["recovery_s"] - row["recovery_s"]
        for b, row in short.items()
        if "recovery_s" in row and "recovery_s" in long.get(b, {})
    ]
    return bool(found) and fmean(found) > 0
