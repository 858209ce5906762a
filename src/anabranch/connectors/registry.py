"""Sources, sinks and tables by name: our own, and those of installed packages.

A package adds one by an entry point, of the group `anabranch.sources`, `anabranch.sinks` or
`anabranch.tables`. Its module is imported when somebody asks for the connector, not before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from anabranch.connectors.options import Connector, unknown
from anabranch.errors import SetupError
from anabranch.version import VERSION

T = TypeVar("T", bound=Connector)


class Registry(Mapping[str, type[T]], Generic[T]):
    """Finds connectors by name. A look-up imports that connector's module only, so that a package
    which only one of them needs may be missing.
    """

    def __init__(self, what: str, base: type[T], group: str, own: Mapping[str, str]) -> None:
        """`own` says `module:Class` for each name of ours; others are entry points of `group`. All
        are subclasses of `base`.
        """
        self._what = what
        self._base = base
        self._group = group
        self._own = dict(own)

    @cached_property
    def _added(self) -> dict[str, list[EntryPoint]]:
        """The entry points of the packages that are installed at the first look-up."""
        points: dict[str, list[EntryPoint]] = {}
        for point in entry_points(group=self._group):
            points.setdefault(point.name, []).append(point)
        return points

    def __getitem__(self, name: str) -> type[T]:
        if name not in self:
            raise KeyError(name)
        return self.find(name)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._own, *sorted(self._added.keys() - self._own.keys())])

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._added

    def __len__(self) -> int:
        return len({*self._own, *self._added})

    def find(self, name: str) -> type[T]:
        """The class called `name`; ConfigError proposes the nearest name, SetupError says what is
        wrong with the package that has it."""
        if name not in self:
            raise unknown(f"there is no {self._what} {name!r}", name, self)
        points = self._added.get(name, [])
        packages = ["anabranch"] * (name in self._own) + [_package(one) for one in points]
        if len(packages) > 1:
            raise SetupError(
                f"the {self._what} {name}() is in {len(packages)} packages:"
                f" {', '.join(sorted(packages))}",
                remedy="Uninstall all but one of them.",
            )
        return self._added_class(points[0]) if points else self._own_class(name)

    def _own_class(self, name: str) -> type[T]:
        module, _, attribute = self._own[name].partition(":")
        try:
            connector: type[T] = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            raise self._missing(name, error) from error
        return connector

    def _added_class(self, point: EntryPoint) -> type[T]:
        try:
            connector = point.load()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != point.module.partition(".")[0]:
                raise self._missing(point.name, error) from error
            raise self._broken(point, f"cannot be loaded: {error}") from error
        except (Exception, SystemExit) as error:
            why = f"cannot be loaded: {type(error).__name__}: {error}"
            raise self._broken(point, why) from error
        if not isinstance(connector, type) or not issubclass(connector, self._base):
            raise self._broken(
                point, f"is no subclass of anabranch.connectors.{self._base.__name__}"
            )
        if lacking := connector.lacking():
            raise self._broken(point, f"does not define {', '.join(lacking)}")
        return connector

    def _missing(self, name: str, error: ModuleNotFoundError) -> SetupError:
        return SetupError(
            f"the {self._what} {name}() needs the Python package {error.name!r}",
            remedy=f"Install it: pip install {error.name}.",
        )

    def _broken(self, point: EntryPoint, why: str) -> SetupError:
        return SetupError(
            f"the {self._what} {point.name}() of {_package(point)} {why}",
            place=point.value,
            remedy=f"Install a version of that package that fits anabranch {VERSION}.",
        )


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
