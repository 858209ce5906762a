"""What sources, sinks and tables have in common: options, which are declared once, checked alike
and listed by docs, and what their class says of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar

from anabranch.errors import ConfigError
from anabranch.plan.places import Place
from anabranch.units import duration_us


@dataclass(frozen=True)
class OptionKind:
    """What an option's value is. `parse` turns what was written into it or raises ValueError;
    `expected` completes the sentence "Give …"."""

    name: str
    expected: str
    parse: Callable[[Any], Any]


@dataclass(frozen=True)
class Option:
    """One option. A missing one takes `default`, which is not parsed."""

    name: str
    kind: OptionKind
    help: str
    default: Any = None
    required: bool = False
    choices: tuple[str, ...] = ()

    def read(self, owner: str, value: Any) -> Any:
        """`value` converted to this option's kind; ConfigError says what would be right."""
        try:
            parsed = self.kind.parse(value)
        except ValueError:
            raise self._wrong(owner, value, f"Give {self.kind.expected}.") from None
        if self.choices and parsed not in self.choices:
            raise self._wrong(owner, value, f"Use {one_of(self.choices)}.")
        return parsed

    def _wrong(self, owner: str, value: Any, remedy: str) -> ConfigError:
        return ConfigError(f"{owner}() has {self.name} = {value!r}", remedy=remedy)


def take(
    owner: str, declared: Sequence[Option], given: Mapping[str, Any], others: Iterable[str] = ()
) -> dict[str, Any]:
    """The value of every declared option; `owner` is the source or sink in messages.

    Raises ConfigError for a value of the wrong kind, a missing required option, and a name that is
    not declared. `others` are names also possible there, to be proposed for a misspelt one.
    """
    names = [option.name for option in declared]
    for name in given:
        if name not in names:
            raise unknown(f"{owner}() has no option {name!r}", name, [*names, *others])
    return {option.name: _value(owner, option, given) for option in declared}


def split(
    declared: Sequence[Option], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The given options that are declared, and the rest, which another library reads."""
    names = {option.name for option in declared}
    known = {name: value for name, value in given.items() if name in names}
    return known, {name: value for name, value in given.items() if name not in names}


def unknown(message: str, name: str, valid: Iterable[str]) -> ConfigError:
    """The error for a name that is not among `valid`: proposes the nearest, else lists all."""
    spelt = {candidate.lower(): candidate for candidate in valid}
    near = get_close_matches(name.lower(), spelt, n=1)
    if near:
        return ConfigError(message, remedy=f"Did you mean {spelt[near[0]]!r}?")
    return ConfigError(message, remedy=f"There is {', '.join(sorted(spelt.values()))}.")


def one_of(choices: Sequence[str]) -> str:
    """`'a', 'b' or 'c'`."""
    quoted = [repr(choice) for choice in choices]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def _value(owner: str, option: Option, given: Mapping[str, Any]) -> Any:
    if given.get(option.name) is not None:
        return option.read(owner, given[option.name])
    if option.required:
        raise ConfigError(
            f"{owner}() needs the option {option.name!r}",
            remedy=f"Write {owner}({option.name} = …): {option.help}.",
        )
    return option.default


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    number = float(value)
    if not 0 < number < float("inf"):
        raise ValueError
    return number


def _count(value: Any) -> int:
    number = _number(value)
    if number != int(number):
        raise ValueError
    return int(number)


def _boolean(value: Any) -> bool:
    words = {"true": True, "false": False}
    if str(value).lower() not in words:
        raise ValueError
    return words[str(value).lower()]


def _duration(value: Any) -> int:
    try:
        return duration_us(value if isinstance(value, str) else str(value))
    except ConfigError:
        raise ValueError from None


TEXT = OptionKind("text", "a text in quotes", _text)
NUMBER = OptionKind("number", "a number above 0", _number)
COUNT = OptionKind("count", "a whole number above 0", _count)
BOOLEAN = OptionKind("boolean", "true or false", _boolean)
DURATION = OptionKind("duration", "a duration such as '100ms'", _duration)
"""Read as µs."""


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
