"""Users' aggregate functions: Python classes with lift, merge and lower."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.connectors.python.functions import exception_line, import_function, user_place
from anabranch.errors import AnabranchError, ConfigError, TaskError
from anabranch.plan.expressions import plain
from anabranch.plan.operators import AggregateCall
from anabranch.window.aggregate.cells import Argument
from anabranch.window.aggregate.custom import Custom
from anabranch.window.aggregate.state import Columns

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


def load_custom(call: AggregateCall, type: pa.DataType) -> tuple[Custom, Callable[[Columns], Any]]:
    """The cell of a call of a user's aggregate, and how its results get their Arrow type."""
    assert call.source is not None
    options = call.source.opened()
    name = str(options["class"])
    instance = load_class(name, str(options.get("base", "")))
    lift, merge, lower = (_guarded(name, one, getattr(instance, one)) for one in METHODS)
    arguments = tuple(Argument(argument.sql(plain)) for argument in call.arguments)
    cell = Custom(call.name, arguments, lift, merge, lower)

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
