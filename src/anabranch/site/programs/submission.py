"""A pocket as its class describes it, before anything is known of where it will run; the class
comes as the text of its file, or pickled.
"""

from __future__ import annotations

import base64
import linecache
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from anabranch.connectors.python.functions import exception_line, importable, user_place
from anabranch.errors import ConfigError, SourceError
from anabranch.plan.spec import Program, Submission
from anabranch.pocket import Pocket, by_batch, by_row, by_time
from anabranch.spark.inside import cloudpickle
from anabranch.units import duration_us

T = TypeVar("T")


def load_class(program: Program, base: type[T]) -> type[T]:
    """The class. Raises SourceError if its code fails, ConfigError if it holds no such class."""
    if program.pickled:
        class_ = _unpickled(program)
    else:
        class_ = getattr(load_module(program.code, program.path), program.class_name, None)
    if not (isinstance(class_, type) and issubclass(class_, base)):
        kind = base.__name__.lower()
        raise ConfigError(f"{program.path} has no {kind} class {program.class_name!r}")
    return class_


def load_module(code: str, path: str) -> ModuleType:
    """The module that `code` makes. If its folder exists, imports look there."""
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


def pickled(class_: type) -> str:
    """The class with all of its module that it uses, for processes that have no such module. Raises
    ConfigError if it holds something that cannot be sent.
    """
    module = sys.modules.get(class_.__module__)
    by_value = module is not None and module.__name__ not in _registered()
    try:
        if by_value:
            cloudpickle.register_pickle_by_value(module)
        try:
            return base64.b64encode(cloudpickle.dumps(class_)).decode()
        finally:
            if by_value:
                cloudpickle.unregister_pickle_by_value(module)
    except Exception as error:
        raise ConfigError(
            f"the class {class_.__qualname__} cannot be sent to a site: {exception_line(error)}",
            remedy="Make in open() what it needs there, such as connections and locks.",
        ) from error


def _registered() -> set[str]:
    names: set[str] = cloudpickle.list_registry_pickle_by_value()
    return names


def _unpickled(program: Program) -> object:
    try:
        content: object = cloudpickle.loads(base64.b64decode(program.code))
    except Exception as error:
        raise _broken(error) from error
    return content


def _broken(error: Exception) -> SourceError:
    where = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else ""
    place = where or user_place(error)
    return SourceError(f"loading it failed: {exception_line(error)}", place=place)


EXAMPLES = {
    "query": 'query = "SELECT Temp FROM Sensor1"',
    "output": 'output = "CREATE STREAM alarm (message STRING)"',
}


def submission(
    pocket: type[Pocket], code: str, path: str, *, pickled: bool = False, name: str | None = None
) -> Submission:
    """The message for a class. Raises ConfigError for what is missing or wrong in it."""
    place = f"{path}: class {pocket.__name__}"
    for attribute, example in EXAMPLES.items():
        if not isinstance(getattr(pocket, attribute, None), str):
            raise ConfigError(f"it has no {attribute}", place=place, remedy=f"As in {example}.")
    if by_row(pocket) == by_batch(pocket):
        number = "both" if by_row(pocket) else "neither"
        raise ConfigError(
            f"it defines {number} of process and row", place=place, remedy="Define one of them."
        )
    if pocket.on_error not in ("stop", "skip", "restart"):
        raise ConfigError(
            f"its on_error is {pocket.on_error!r}",
            place=place,
            remedy="It is 'stop', 'skip' or 'restart'.",
        )
    if pocket.standby is not None and not (pocket.deterministic and by_row(pocket)):
        raise ConfigError(
            "it asks for a standby, which would not give the same",
            place=place,
            remedy="Define row, and say deterministic = True if it is.",
        )
    promised = next((one for one in ("deterministic", "stateless") if getattr(pocket, one)), "")
    if by_time(pocket) and promised:
        raise ConfigError(
            f"it says {promised}, and what it gives in watermark() depends on when"
            " that was called last",
            place=place,
            remedy=f"Leave {promised} out, or watermark().",
        )
    if (pocket.snapshot is Pocket.snapshot) != (pocket.restore is Pocket.restore):
        present, missing = (
            ("restore", "snapshot")
            if pocket.snapshot is Pocket.snapshot
            else ("snapshot", "restore")
        )
        raise ConfigError(
            f"it defines {present}, but not {missing}",
            place=place,
            remedy="They belong together: define both.",
        )
    program = Program(
        code=code,
        path=path,
        class_name=pocket.__name__,
        pickled=pickled,
        on_error=pocket.on_error,
        deterministic=pocket.deterministic,
        stateless=pocket.stateless,
        every_us=_every_us(pocket, place),
        selectivity=pocket.selectivity,
    )
    return Submission(
        name=name or pocket.__name__,
        query=pocket.query,
        output=pocket.output,
        site=pocket.site,
        standby=pocket.standby,
        program=program,
    )


def _every_us(pocket: type[Pocket], place: str) -> int:
    interval = 0
    with suppress(ConfigError, OverflowError):
        interval = duration_us(str(pocket.every))
    if not 0 < interval < 2**62:
        raise ConfigError(
            f"its every is {pocket.every!r}", place=place, remedy="It is a duration such as '1s'."
        )
    return interval


def named(pockets: list[type[Pocket]], name: str, place: str) -> type[Pocket]:
    """The pocket of this name. Raises ConfigError if there is none."""
    for pocket in pockets:
        if pocket.__name__ == name:
            return pocket
    names = ", ".join(one.__name__ for one in pockets)
    remedy = f"There are: {names}." if names else "Write class Name(Pocket): …"
    raise ConfigError(f"there is no pocket {name}", place=place, remedy=remedy)


def described(name: str, class_: str, base: str) -> Submission:
    """The pocket `module:Class`, whose file lies in `base`, under a name, as it is submitted."""
    module, _, class_name = class_.partition(":")
    file = Path(base) / f"{module.replace('.', '/')}.py"
    try:
        code = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"cannot read it: {why}", place=str(file), remedy="Write class = 'module:Class'."
        ) from None
    chosen = named(classes(code, str(file), Pocket), class_name, str(file))
    return submission(chosen, code, str(file), name=name)
