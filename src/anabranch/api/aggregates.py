"""Finds the module from which a site loads the class of a user's aggregate."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from anabranch.errors import ConfigError


def place_of(class_: type) -> tuple[str, str]:
    """The folder and the 'module:Class' that a site loads. Raises ConfigError if it cannot."""
    place = "aggregate(class_)"
    if not isinstance(class_, type):
        raise ConfigError(f"{class_!r} is no class", place=place)
    module = sys.modules.get(class_.__module__)
    remedy = "Put it into a file of its own, import it from there, and give it then."
    if class_.__module__ == "__main__" or module is None:
        message = f"{class_.__qualname__} is defined in a notebook or in the script that runs"
        raise ConfigError(message, place=place, remedy=remedy)
    if getattr(module, class_.__qualname__, None) is not class_:
        message = f"{class_.__qualname__} is not at the top of its module {class_.__module__}"
        raise ConfigError(message, place=place, remedy=remedy)
    try:
        file = Path(inspect.getfile(class_)).resolve()
    except (TypeError, OSError):
        message = f"{class_.__qualname__} has no file that a site could load"
        raise ConfigError(message, place=place, remedy=remedy) from None
    parts = class_.__module__.split(".")
    depth = len(parts) if file.name == "__init__.py" else len(parts) - 1
    return str(file.parents[depth]), f"{class_.__module__}:{class_.__qualname__}"
