"""The body of a window aggregate: Spark evaluates keys and arguments, users' classes run as they
are, `window` does all the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from anabranch.connectors.python.functions import exception_line, import_function, user_place
from anabranch.errors import AnabranchError, ConfigError, TaskError
from anabranch.link.wire import BORN, EVENT_TIME, POSITION, wire_schema
from anabranch.plan.expressions import plain, quoted
from anabranch.plan.operators import Aggregate, AggregateCall, Column, Operator, Projection
from anabranch.plan.windows import RowPanes, TimePanes
from anabranch.site.tasks.body import Produced, Taken, apply, as_schema
from anabranch.site.tasks.pickled import packed, unpacked
from anabranch.snapshot.state import KeptPieces, State
from anabranch.spark.kept.expressions import Expressions
from anabranch.spark.kept.plan import Build
from anabranch.spark.session import arrow_schema
from anabranch.stream.batch import START_WATERMARK
from anabranch.window.aggregate.aggregate import BLOCK, Emitted, WindowAggregate
from anabranch.window.aggregate.calls import CallPlan, Custom
from anabranch.window.aggregate.cells import Argument
from anabranch.window.aggregate.lift import Lift, arguments
from anabranch.window.aggregate.pending import Ready
from anabranch.window.aggregate.state import Columns
from anabranch.window.panes import Grid


class Arguments:
    """The values of `arguments` for tables of `schema`: a row per tuple, in order."""

    def __init__(
        self, expressions: Expressions, schema: pa.Schema, arguments: Sequence[Argument]
    ) -> None:
        direct = {one: _direct(one, schema) for one in arguments}
        self._direct = {one: take for one, take in direct.items() if take}
        self._names = {one: f"_a{i}" for i, one in enumerate(arguments) if not direct[one]}
        self._evaluate = expressions.evaluation(schema, self._select) if self._names else None

    def _select(self, frame: DataFrame) -> DataFrame:
        return frame.selectExpr(*(f"{one.spark} AS {name}" for one, name in self._names.items()))

    def open(self) -> None:
        if self._evaluate:
            self._evaluate.open()

    def __call__(self, table: pa.Table) -> Mapping[Argument, pa.ChunkedArray]:
        found = {one: take(table) for one, take in self._direct.items()}
        if self._evaluate:
            given = self._evaluate(table)
            found |= {one: given.column(name) for one, name in self._names.items()}
        return found


Take = Callable[[pa.Table], pa.ChunkedArray]


def _direct(argument: Argument, schema: pa.Schema) -> Take | None:
    """How to take it from a table, if it is a column there, or a number to be a DOUBLE."""
    names = {quoted(name): name for name in schema.names}
    name = names.get(argument.sql)
    if name is None:
        return None
    if not argument.double:
        return lambda table: table.column(name)
    type = schema.field(name).type
    if pa.types.is_integer(type) or pa.types.is_floating(type):
        return lambda table: table.column(name).cast(pa.float64(), safe=False)
    return None


METHODS = ("lift", "merge", "lower")


def load_class(name: str, base: str) -> Any:
    """An object of the class `module:Class`, whose file is in `base` or which is installed."""
    found = import_function(name, Path(base))
    if not isinstance(found, type):
        raise ConfigError(f"{name} is not a class", remedy="Write it as 'module:Class'.")
    missing = [method for method in METHODS if not callable(getattr(found, method, None))]
    if missing:
        raise ConfigError(
            f"the class {name} has no method {missing[0]}",
            remedy="An aggregate is a class with lift(*values), merge(a, b) and lower(partial).",
        )
    return _guarded(name, "__init__", found)()


def _module_of(instance: Any) -> Mapping[str, Any]:
    """The names of the module that its class is defined in, as it was loaded for us."""
    names: Mapping[str, Any] = getattr(type(instance).lift, "__globals__", {})
    return names


def load_custom(call: AggregateCall, type: pa.DataType) -> tuple[Custom, Callable[[Columns], Any]]:
    """The cell of a call of a user's aggregate, and how its results get their Arrow type."""
    assert call.source is not None
    options = call.source.opened()
    name = str(options["class"])
    instance = load_class(name, str(options.get("base", "")))
    lift, merge, lower = (_guarded(name, one, getattr(instance, one)) for one in METHODS)
    arguments = tuple(Argument(argument.sql(plain)) for argument in call.arguments)
    own = _module_of(instance)
    pack, unpack = partial(packed, own=own), partial(unpacked, own=own)
    cell = Custom(call.name, arguments, lift, merge, lower, pack, unpack)

    def results(columns: Columns) -> pa.Array:
        values = cell.lower(columns)
        try:
            return pa.array(values, type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise TaskError(
                f"{name}.lower gave what is no {call.type}: {exception_line(error)}"
            ) from error

    return cell, results


def _guarded(name: str, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        try:
            return function(*values)
        except AnabranchError:
            raise
        except Exception as error:
            raise TaskError(
                f"{name}.{method} failed: {exception_line(error)}", place=user_place(error)
            ) from error

    return call


WINDOW_START, WINDOW_END = "window_start", "window_end"
_TS, _BORN = "_result_ts", "_result_born"
"""Of a result, apart from a key that is called as a tuple's are."""
Pick = Callable[[pa.Table], pa.Table]


class AggregateBody:
    """`operators` are an Aggregate and what follows it: HAVING and a projection.

    Raises ConfigError for what cannot be evaluated.
    """

    def __init__(
        self,
        expressions: Expressions,
        alias: str,
        input_columns: pa.Schema,
        operators: Sequence[Operator],
        output_columns: pa.Schema,
        block: int = BLOCK,
    ) -> None:
        aggregate, *behind = operators
        assert isinstance(aggregate, Aggregate)
        self._expressions = expressions
        self._input = wire_schema(input_columns)
        self._output = wire_schema(output_columns)
        self._panes = aggregate.panes
        keys = arrow_schema(Column(name=key.name, type=key.type) for key in aggregate.keys)
        calls = arrow_schema(Column(name=call.name, type=call.type) for call in aggregate.calls)
        self._columns = [*keys, *calls]
        by_position = isinstance(self._panes, RowPanes)
        custom = {
            call.name: load_custom(call, field.type)
            for call, field in zip(aggregate.calls, calls, strict=True)
            if call.source
        }
        plan = CallPlan(aggregate.calls, calls.types, custom, latest=by_position)
        key_arguments = [Argument(key.expr.sql(plain)) for key in aggregate.keys]
        self._arguments = Arguments(
            expressions,
            self._input.append(pa.field(POSITION, pa.int64())),
            arguments(key_arguments, plan),
        )
        self._lift = Lift(key_arguments, plan, self._arguments)
        self._results, self._pick, rest = self._plan_behind(behind)
        self._evaluate = expressions.evaluation(*rest) if rest else None
        grid = _grid(self._panes)
        self._new_windows = partial(
            WindowAggregate, grid, by_position, plan, keys, self._lift, block
        )
        self._windows = self._new_windows()

    def open(self, instant: int = START_WATERMARK) -> None:
        self._windows.open(instant)
        self.warm_up()

    def warm_up(self) -> bool:
        one = np.zeros(1, np.int64)
        times = {EVENT_TIME: 0, BORN: 0}
        nulls = pa.Table.from_pylist([times], self._input)
        # An expression may refuse NULLs; the stream may have none.
        with suppress(PySparkException, AnabranchError):
            self._lift(Ready(nulls, one, one, range(1), 1))
            return True
        return False

    def reopen(self, instant: int) -> None:
        self._windows = self._new_windows()
        self._windows.open(instant)

    @property
    def state_bytes(self) -> int:
        return self._windows.nbytes

    def snapshot(self) -> State:
        return self._windows.snapshot()

    def restore(self, kept: KeptPieces) -> None:
        self._windows.restore(kept)

    def step(self, inputs: Sequence[Taken]) -> Produced:
        (taken,) = inputs
        table = taken.table(self._input)
        first = taken.last - len(table) + 1
        taken.forget()
        ts = table.column(EVENT_TIME).to_numpy()
        emitted = self._windows.step(table, first, ts, taken.last, taken.watermark)
        del table
        rows = self._finish(emitted)
        return Produced(rows, emitted.watermark, (emitted.needless,), emitted.instant)

    def _plan_behind(
        self, behind: Sequence[Operator]
    ) -> tuple[pa.Schema, Pick, tuple[pa.Schema, Build] | None]:
        """The columns of results; how to compute those operators after the aggregate that need no
        Spark (they only pick columns); and the rest of them, with the schema that these read.
        """
        bound = pa.timestamp("us", "UTC") if isinstance(self._panes, TimePanes) else pa.int64()
        bounds = [pa.field(name, bound) for name in (WINDOW_START, WINDOW_END)]
        times = [pa.field(name, pa.int64()) for name in (_TS, _BORN)]
        results = pa.schema([*self._columns, *bounds, *times])
        picks: list[Projection] = []
        table = results.empty_table()
        while len(picks) < len(behind):
            operator = behind[len(picks)]
            picked = _picked(operator, table) if isinstance(operator, Projection) else None
            if picked is None or not isinstance(operator, Projection):
                break
            picks.append(operator)
            table = picked

        def pick(table: pa.Table) -> pa.Table:
            for one in picks:
                table = _picked(one, table) or table
            return table

        rest = behind[len(picks) :]
        build = partial(apply, operators=rest, naming=plain, carried=(_TS, _BORN))
        return results, pick, (table.schema, build) if rest else None

    def _finish(self, emitted: Emitted) -> pa.Table:
        """The results of the operators after the aggregate."""
        if not len(emitted.ts):
            return self._output.empty_table()
        table = self._pick(self._table(emitted))
        if self._evaluate:
            table = self._evaluate(table)
        return as_schema(table.rename_columns(self._output.names), self._output)

    def _table(self, emitted: Emitted) -> pa.Table:
        by_time = isinstance(self._panes, TimePanes)
        # Of rows, the positions of the first and the last one, which count from 1.
        starts = emitted.starts if by_time else emitted.starts + 1
        bounds = [
            pa.array(values).cast(self._results.field(name).type)
            for values, name in ((starts, WINDOW_START), (emitted.ends, WINDOW_END))
        ]
        times = [pa.array(emitted.ts), pa.array(emitted.born)]
        return pa.table([*emitted.columns, *bounds, *times], schema=self._results)

    def interrupt(self) -> None:
        self._expressions.interrupt()

    def abandon(self) -> None:
        self._expressions.abandon()

    def close(self) -> None:
        self._expressions.close()


def _grid(panes: TimePanes | RowPanes) -> Grid:
    if isinstance(panes, TimePanes):
        return Grid(panes.width_us, panes.slide_us)
    return Grid(panes.width, panes.slide)


def _picked(projection: Projection, table: pa.Table) -> pa.Table | None:
    """The result of `projection` if it only takes columns and names them."""
    uses = [item.expr.column for item in projection.items]
    if any(use is None for use in uses):
        return None
    columns = [table.column(use.column) for use in uses if use is not None]
    names = [item.name for item in projection.items]
    times = [table.column(_TS), table.column(_BORN)]
    return pa.table([*columns, *times], names=[*names, _TS, _BORN])
