"""Anabranch: continuous queries over many Spark sites, each with the service it must get."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.version import VERSION

if TYPE_CHECKING:
    from anabranch.api import Cluster, join, secret, sink, source
    from anabranch.pocket import Pocket

__version__ = VERSION
__all__ = ["Cluster", "Pocket", "join", "secret", "sink", "source"]

_HOMES = {"Pocket": "anabranch.pocket"} | dict.fromkeys(
    ("Cluster", "join", "secret", "sink", "source"), "anabranch.api"
)


def __getattr__(name: str) -> Any:
    """Imports what is exported here when it is first used, because Spark takes a moment to load."""
    if name not in _HOMES:
        raise AttributeError(f"module 'anabranch' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
