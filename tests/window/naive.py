"""What a MASTER query means, with nothing clever: slow and obvious.

Evaluation instants are the tuples of the masters by (ts, order in MASTER, pos). At each, every
input's content is looked up, the whole product is filtered, and what was not in the result of the
instant before is output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from anabranch.plan.windows import GONE, UNTIL, Range, Rows, TableWindow, Window

Values = Mapping[str, Any]
Predicate = Callable[[Sequence[Values]], bool]
"""The WHERE, on the values (and `_ts`) of one tuple of each input in FROM order."""


@dataclass(frozen=True)
class Tuple:
    """A tuple of a stream; compared by its position."""

    pos: int
    ts: int
    values: Values
    born: int = 0


@dataclass(frozen=True)
class Result:
    """Output event time, the positions of the combination, and when it was born."""

    ts: int
    positions: tuple[int, ...]
    born: int = 0


def content(window: Window, tuples: Sequence[Tuple], t: int) -> list[Tuple]:
    """What `window` over a stream holds at an instant of time `t`."""
    so_far = [x for x in tuples if x.ts <= t]
    if isinstance(window, Range):
        return [x for x in so_far if t - window.width_us < x.ts]
    if isinstance(window, Rows):
        return sorted(so_far, key=lambda x: (x.ts, x.pos))[-window.count :]
    if isinstance(window, TableWindow):
        rows: dict[int, Tuple] = {}
        for x in sorted(so_far, key=lambda x: x.pos):
            if x.values[GONE] is None:
                rows[x.pos] = x
            else:
                rows.pop(x.values[GONE], None)
        return list(rows.values())
    return [x for x in so_far if t < x.values[UNTIL]]


def evaluate(
    inputs: Sequence[Sequence[Tuple]],
    windows: Sequence[Window],
    masters: Sequence[int],
    predicate: Predicate = lambda values: True,
    order: Callable[[Sequence[Tuple]], Any] = lambda combination: [x.pos for x in combination],
) -> list[Result]:
    """The whole output, in order. `windows` belong to the first inputs; the others only trigger.

    Results of one instant are in the order of `order`: usually the positions in FROM order.
    """
    held = inputs[: len(windows)]
    instants = sorted(
        (x.ts, rank, x.pos, x.born) for rank, master in enumerate(masters) for x in inputs[master]
    )
    known: dict[tuple[int, ...], bool] = {}

    def fulfils(combination: Sequence[Tuple]) -> bool:
        key = tuple(x.pos for x in combination)
        if key not in known:
            known[key] = predicate([{**x.values, "_ts": x.ts} for x in combination])
        return known[key]

    output: list[Result] = []
    previous: set[tuple[int, ...]] = set()
    for t, _, _, born in instants:
        contents = [content(w, tuples, t) for w, tuples in zip(windows, held, strict=True)]
        result = {
            tuple(x.pos for x in combination): combination
            for combination in product(*contents)
            if fulfils(combination)
        }
        new = [combination for key, combination in result.items() if key not in previous]
        for combination in sorted(new, key=order):
            newest = max(born, *(x.born for x in combination))
            output.append(Result(t, tuple(x.pos for x in combination), newest))
        previous = set(result)
    return output
