"""An aggregate for sites to load."""

from __future__ import annotations


class Midrange:
    def lift(self, x: float) -> tuple[float, float]:
        return (x, x)

    def merge(self, a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
        return (min(a[0], b[0]), max(a[1], b[1]))

    def lower(self, state: tuple[float, float]) -> float:
        return (state[0] + state[1]) / 2
