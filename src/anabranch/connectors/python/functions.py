"""Finds a user's function by its name, and the place in the user's code where an error arose."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from anabranch.errors import ConfigError, SourceError

_PATH_LOCK = threading.Lock()
_OURS = str(Path(__file__).parents[2])
_INSTALLED = tuple(sysconfig.get_paths()[key] for key in ("stdlib", "purelib", "platlib"))


def import_function(name: str, base: Path) -> Callable[..., Any]:
    """The function `module:name`. `base` goes before the installed packages. A module file there
    is loaded afresh each time: two folders may have one of the same name, and an edit counts."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise ConfigError(f"{name!r} names no function", remedy="Write it as 'module:function'.")
    function: Callable[..., Any] | None = getattr(_load(module, base), attribute, None)
    if not callable(function):
        raise ConfigError(
            f"the module {module} has no function {attribute!r}",
            remedy="Write it as 'module:function'.",
        )
    return function


def user_place(error: BaseException) -> str:
    """`file:line` of the deepest frame in code that is neither ours nor installed; if there is
    none, of the deepest frame that is not ours; empty if all are ours.
    """
    frames = traceback.extract_tb(error.__traceback__)
    foreign = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    user = [frame for frame in foreign if not frame.filename.startswith(_INSTALLED)]
    chosen = (user or foreign)[-1:]
    return f"{chosen[0].filename}:{chosen[0].lineno}" if chosen else ""


def user_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, from the first frame on that is not ours."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames)).strip()


def exception_line(error: BaseException) -> str:
    """The last line that Python prints: `ValueError: no such sensor`."""
    return traceback.format_exception_only(error)[-1].strip()


def _load(module: str, base: Path) -> ModuleType:
    file = base / f"{module}.py"
    try:
        with importable(base):
            return _from_file(module, file) if file.exists() else importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise _broken(module, error) from error
        raise ConfigError(
            f"there is no Python module {module!r}",
            remedy=f"It must lie in {base} or be installed where the site runs.",
        ) from error
    except Exception as error:
        raise _broken(module, error) from error


def _broken(module: str, error: Exception) -> SourceError:
    where = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else ""
    message = f"importing {module} failed: {exception_line(error)}"
    return SourceError(message, place=where or user_place(error))


def _from_file(module: str, file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{module}@{file}", file)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"cannot load {file}", name=module)
    loaded = importlib.util.module_from_spec(spec)
    # Dataclasses and pickle look their module up by name.
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Makes `folder` importable for the block; one import at a time sees it."""
    with _PATH_LOCK:
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path.remove(str(folder))
