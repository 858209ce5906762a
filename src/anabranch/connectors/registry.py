"""Sources and sinks by name, imported when first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Generic, TypeVar

from anabranch.connectors.options import Option, unknown
from anabranch.errors import SetupError

T = TypeVar("T")


class Registry(Mapping[str, type[T]], Generic[T]):
    """`entries` says `module:Class` for each name. Looking up one name imports its module only, so
    that a package which only one of them needs may be missing."""

    def __init__(self, what: str, entries: Mapping[str, str]) -> None:
        self._what = what
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> type[T]:
        module, _, attribute = self._entries[name].partition(":")
        connector: type[T] = getattr(import_module(module), attribute)
        return connector

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, name: str) -> type[T]:
        """The class called `name`; ConfigError proposes the nearest name, SetupError names the
        package that is not installed."""
        if name not in self._entries:
            raise unknown(f"there is no {self._what} {name!r}", name, self._entries)
        try:
            return self[name]
        except ModuleNotFoundError as error:
            raise SetupError(
                f"the {self._what} {name}() needs the Python package {error.name!r}",
                remedy=f"Install it: pip install {error.name}.",
            ) from error

    def options(self, name: str) -> tuple[Option, ...]:
        """What `name` declares, for docs and completion."""
        declared: tuple[Option, ...] = getattr(self.find(name), "options", ())
        return declared
