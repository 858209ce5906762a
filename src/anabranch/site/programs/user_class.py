"""A user's class as it was submitted: as the text of its file, or pickled."""

from __future__ import annotations

import base64
import linecache
import sys
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from anabranch.connectors.python.functions import exception_line, importable, user_place
from anabranch.errors import ConfigError, SourceError
from anabranch.plan.program import Program
from anabranch.spark.inside import cloudpickle

T = TypeVar("T")


def load_class(program: Program, base: type[T]) -> type[T]:
    """Raises SourceError if its code fails, ConfigError if it holds no such class."""
    if program.pickled:
        found = _unpickled(program)
    else:
        found = getattr(load_module(program.code, program.path), program.class_name, None)
    if not (isinstance(found, type) and issubclass(found, base)):
        kind = base.__name__.lower()
        raise ConfigError(f"{program.path} has no {kind} class {program.class_name!r}")
    return found


def load_module(code: str, path: str) -> ModuleType:
    """The module that `code` makes. Its folder, if it is there, is searched for what it imports."""
    module = ModuleType(f"pocket@{path}")
    module.__file__ = path
    # Tracebacks show the lines that run, whatever the file holds by then, or if it is elsewhere.
    linecache.cache[path] = (len(code), None, code.splitlines(keepends=True), path)
    sys.modules[module.__name__] = module  # dataclasses look it up by name
    try:
        with importable(Path(path).parent):
            exec(compile(code, path, "exec"), module.__dict__)
    except Exception as error:
        raise _broken(error) from error
    # Its functions may be sent to Python workers of Spark, which have no such module.
    cloudpickle.register_pickle_by_value(module)
    return module


def classes(code: str, path: str, base: type[T]) -> list[type[T]]:
    """The classes of `base` that the file itself defines, in order."""
    module = load_module(code, path)
    return [
        one
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, base) and one.__module__ == module.__name__
    ]


def pickled(found: type) -> str:
    """The class with all of its module that it uses, for processes that have no such module.

    Raises ConfigError if it holds on to what cannot be sent.
    """
    module = sys.modules.get(found.__module__)
    by_value = module is not None and module.__name__ not in _registered()
    try:
        if by_value:
            cloudpickle.register_pickle_by_value(module)
        try:
            return base64.b64encode(cloudpickle.dumps(found)).decode()
        finally:
            if by_value:
                cloudpickle.unregister_pickle_by_value(module)
    except Exception as error:
        raise ConfigError(
            f"the class {found.__qualname__} cannot be sent to a site: {exception_line(error)}",
            remedy="Make in open() what it needs there, such as connections and locks.",
        ) from error


def _registered() -> set[str]:
    names: set[str] = cloudpickle.list_registry_pickle_by_value()
    return names


def _unpickled(program: Program) -> object:
    try:
        found: object = cloudpickle.loads(base64.b64decode(program.code))
    except Exception as error:
        raise _broken(error) from error
    return found


def _broken(error: Exception) -> SourceError:
    where = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else ""
    place = where or user_place(error)
    return SourceError(f"loading it failed: {exception_line(error)}", place=place)
