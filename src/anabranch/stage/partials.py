"""Partial aggregates in DuckDB's SQL: how they are made of tuples, merged, and become results,
and which slices and windows have anything in them.

Tables of tuples have the columns `_slice`, `_k0`, `_k1`, … (keys) and `_a0`, `_a1`, … (arguments);
tables of partials have `_slice`, the keys, and `_p0`, `_p1`, …
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.plan.operators import AggregateCall
from anabranch.plan.stage import Stage
from anabranch.stream.batch import START_WATERMARK
from anabranch.window.panes import Grid

SLICE = "_slice"
LONG = 16
"""Windows of so many slices are merged of blocks."""
_WHOLE_SUM = "CAST(sum({0}){1} AS BIGINT)"


@dataclass(frozen=True)
class Partial:
    """`lift` makes it from many tuples, `single` from one, `merge` from many partials called `{0}`,
    with `{1}` after the function.
    """

    lift: str
    single: str
    merge: str


@dataclass(frozen=True)
class CallPartials:
    """A call: its partials, and its result in terms of their merged values."""

    partials: tuple[Partial, ...]
    result: str


class PartialsSql:
    """The statements for one stage."""

    def __init__(self, stage: Stage) -> None:
        self.keys = [f"_k{number}" for number in range(len(stage.aggregate.keys))]
        self.arguments = [f"_a{number}" for number in range(len(stage.arguments))]
        places = {expr: f"_a{number}" for number, expr in enumerate(stage.arguments)}
        cells = [
            _cell(call, [places[one] for one in call.arguments]) for call in stage.aggregate.calls
        ]
        self._partials = [partial for cell in cells for partial in cell.partials]
        self.columns = [f"_p{number}" for number in range(len(self._partials))]
        self.results: list[str] = []
        at = 0
        for cell in cells:
            self.results.append(cell.result.format(*self.columns[at:]))
            at += len(cell.partials)

    def lift(self, source: str) -> str:
        """Partials of the tuples in `source`: one per slice and key."""
        columns = _named([one.lift for one in self._partials], self.columns)
        return f"SELECT {self._by(columns)} FROM {source} GROUP BY {self._by([])}"

    def single(self, source: str) -> str:
        """Partials of the tuples in `source`: one per tuple."""
        columns = _named([one.single for one in self._partials], self.columns)
        return f"SELECT {self._by(columns)} FROM {source}"

    def merged(self, source: str, where: str) -> str:
        return (
            f"SELECT {self._by(self._merges())} FROM {source} WHERE {where} GROUP BY {self._by([])}"
        )

    def windows(self, source: str, first: int, last: int, stride: int, span: int) -> str:
        """Results of the windows `first`…`last`, by window and key. A window's slices are the
        `span` ones from its number × `stride` on."""
        keys = ", ".join(self.keys)
        order = ", ".join(f"{key} NULLS FIRST" for key in self.keys)
        results = [f"{one} AS _r{number}" for number, one in enumerate(self.results)]
        if span == 1:
            columns = ", ".join([f"{SLICE} // {stride} AS _w", *self.keys, *self.columns])
            needed = f"{SLICE} >= {first * stride} AND {SLICE} <= {last * stride}"
            parts = f"SELECT {columns} FROM {source} WHERE {needed} AND {SLICE} % {stride} = 0"
        else:
            parts = self._parts(source, first, last, stride, span)
        return (
            f"SELECT _w, {keys}, {', '.join(results)} FROM"
            f" (SELECT _w, {keys}, {', '.join(self._merges())} FROM ({parts}) GROUP BY _w, {keys})"
            f" ORDER BY _w, {order}"
        )

    def _parts(self, source: str, first: int, last: int, stride: int, span: int) -> str:
        """The pieces that these windows are merged from, by window and key."""
        columns = ", ".join([*self.keys, *self.columns])
        low, high = first * stride, last * stride + span
        base = low // (span * stride) * span  # the window that a block begins with
        slices = self.merged(source, f"{SLICE} >= {low} AND {SLICE} < {high}")
        return (
            f"WITH slices AS MATERIALIZED (SELECT {SLICE} - {base * stride} AS _s, {columns}"
            f" FROM ({slices}))"
            f" SELECT unnest(range(greatest(_from, {first - base}), least(_to, {last - base}) + 1))"
            f" + {base} AS _w, {columns} FROM ({self._pieces(stride, span)})"
        )

    def _pieces(self, stride: int, span: int) -> str:
        """The pieces that windows are merged from, each for the windows `_from`…`_to`: a slice is
        in all windows that cover it. For long windows that would be many pieces each. So slices are
        grouped into blocks as long as a window, as van Herk, Gil and Werman do: a window is the
        tail of a block and the head of the next, which begin or end with it for all windows up to
        the next existing slice.
        """
        columns = ", ".join([*self.keys, *self.columns])
        # A dividend is not negative: quotients are rounded towards zero.
        first = f"(_s + {stride - 1 + span * stride} - {span - 1}) // {stride} - {span}"
        if span < LONG:
            return f"SELECT {columns}, {first} AS _from, _s // {stride} AS _to FROM slices"
        running = ", ".join([*self.keys, *self._merges(" OVER run")])
        by = f"(PARTITION BY {', '.join(self.keys)}, _s // {span} ORDER BY _s"
        block = f"_s // {span} * {span}"
        behind = f"coalesce(lead(_s) OVER run + 1, {block})"
        until = f"coalesce(lead(_s) OVER run, {block} + {span - 1})"
        return (
            f"SELECT {running}, ({behind} + {stride - 1}) // {stride} AS _from,"
            f" _s // {stride} AS _to FROM slices WINDOW run AS {by} DESC)"
            f" UNION ALL SELECT {running}, {first} AS _from,"
            f" ({until} - 1 + {span * stride} - {span - 1}) // {stride} - {span} AS _to"
            f" FROM slices WINDOW run AS {by})"
        )

    def _merges(self, over: str = "") -> list[str]:
        pairs = zip(self._partials, self.columns, strict=True)
        return _named([one.merge.format(name, over) for one, name in pairs], self.columns)

    def _by(self, others: Sequence[str]) -> str:
        return ", ".join([SLICE, *self.keys, *others])


def _named(expressions: Sequence[str], names: Sequence[str]) -> list[str]:
    return [f"{one} AS {name}" for one, name in zip(expressions, names, strict=True)]


def _cell(call: AggregateCall, places: Sequence[str]) -> CallPartials:
    function = call.function.upper()
    if function == "COUNT":
        return CallPartials((_count(places),), "{}")
    (place,) = places
    if function in ("MIN", "MAX"):
        name = function.lower()
        return CallPartials((Partial(f"{name}({place})", place, f"{name}({{0}}){{1}}"),), "{}")
    if function == "AVG":
        total = f"CAST({place} AS DOUBLE)"
        return CallPartials(
            (Partial(f"sum({total})", total, "sum({0}){1}"), _count(places)), "{0} / {1}"
        )
    if call.type == "bigint":
        # The sum of BIGINTs is a HUGEINT: what exceeds a BIGINT fails, as in Spark.
        lift = f"CAST(sum({place}) AS BIGINT)"
        return CallPartials((Partial(lift, f"CAST({place} AS BIGINT)", _WHOLE_SUM),), "{}")
    if call.type.startswith("decimal"):
        wide = f"CAST({place} AS DECIMAL(38, {_scale(call.type)}))"
        return CallPartials(
            (Partial(f"sum({wide})", wide, "sum({0}){1}"),), f"CAST({{}} AS {call.type})"
        )
    total = f"CAST({place} AS DOUBLE)"
    return CallPartials((Partial(f"sum({total})", total, "sum({0}){1}"),), "{}")


def _scale(type: str) -> int:
    return int(type.rstrip(")").partition(",")[2])


def _count(places: Sequence[str]) -> Partial:
    present = " AND ".join(f"{place} IS NOT NULL" for place in places) or "TRUE"
    return Partial(
        f"count(*) FILTER (WHERE {present})" if places else "count(*)",
        f"CAST({present} AS BIGINT)",
        _WHOLE_SUM,
    )


MANY = 500_000
"""Partials of the windows that are given out together."""


class Slices(dict[int, int]):
    """Slice → the number of its partials."""

    def __init__(self, grid: Grid, counts: Mapping[int, int]) -> None:
        super().__init__(counts)
        self._grid = grid

    def count(self, more: Mapping[int, int]) -> None:
        for slice, rows in more.items():
            self[slice] = self.get(slice, 0) + rows

    def forget(self, floor: int) -> None:
        """Forgets the slices before the slice `floor`."""
        for slice in [one for one in self if one < floor]:
            del self[slice]

    def windows(self, after: int, until: int) -> list[int]:
        """The windows with anything in them that end after `after`, up to `until`."""
        grid = self._grid
        first, behind = grid.open_at(after), grid.open_at(until)
        numbers: set[int] = set()
        for slice in list(self):
            low = max(first, grid.first_window(slice))
            high = min(behind - 1, slice // grid.stride)
            numbers.update(range(low, high + 1))
        return sorted(numbers)

    def last_due(self, after: int, watermark: int) -> int | None:
        """The end of the last of the next windows to be given, if there are any: not too much at
        once.
        """
        if watermark == START_WATERMARK:
            return None
        rows, last = 0, None
        for window in self.windows(after, watermark):
            first = self._grid.first_pane(window)
            rows += sum(self.get(first + n, 0) for n in range(self._grid.span))
            if last is not None and rows > MANY:
                break
            last = window
        return None if last is None else self._grid.end(last)


def first_slice(grid: Grid, upto: int) -> int:
    """The first slice that a window needs which ends after `upto`."""
    return -(2**62) if upto == START_WATERMARK else grid.first_pane(grid.open_at(upto))
