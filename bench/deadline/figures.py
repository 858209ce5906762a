"""Figure 7 of the deadline paper as a picture: simulated, and on real sites if that was run."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(result: dict[str, Any], folder: Path) -> None:
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    for name, curves in (("simulated", result["figure7"]), ("real", result.get("real"))):
        if not curves:
            continue
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        for combination, points in curves.items():
            v2v = sorted(points, key=int)
            axes.plot(
                [int(one) for one in v2v],
                [points[one] * 100 for one in v2v],
                "o-",
                markersize=3,
                label=combination,
            )
        axes.set(xlabel="V2V tuples", ylabel="late results [%]", ylim=(0, 105))
        axes.legend()
        axes.grid(alpha=0.3)
        figure.savefig(folder / f"figure-07-{name}.png", dpi=120)
