"""What sources, sinks and tables have in common: the abilities that their classes declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

from anabranch.connectors.options import Option
from anabranch.plan.places import Place


class Connector:
    """All that others ask of a connector is an attribute or a method of its base class, with a
    default.
    """

    options: ClassVar[tuple[Option, ...]] = ()
    """What a statement may say in its brackets."""
    others: ClassVar[str] = ""
    """What options are that are not among these; empty if there may be none."""
    columns_are_options: ClassVar[bool] = False
    """An option of the name of a declared column is an option, too."""

    @classmethod
    def places(cls, options: Mapping[str, Any], base: Path) -> list[Place]:
        """The files of this machine that are read or written. `options` have been checked."""
        return []

    @classmethod
    def look(cls, options: Mapping[str, Any], base: Path) -> None:
        """Raises SourceError if something that is read does not exist, as far as that shows at
        once. `options` have been checked.
        """

    @classmethod
    def lacking(cls) -> list[str]:
        """The methods that the class must define, by its own declarations, but does not define."""
        return []


def undefined(connector: type, base: type, names: Iterable[str]) -> list[str]:
    """The names of those methods of `base` that `connector` has not overridden."""
    return [name for name in names if getattr(connector, name) is getattr(base, name)]
