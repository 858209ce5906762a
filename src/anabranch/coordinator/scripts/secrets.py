"""The secrets of one script: those that it creates and drops, and those that it writes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from anabranch.coordinator.base.secrets import Kept, Secrets
from anabranch.coordinator.base.sites import nearest
from anabranch.coordinator.scripts.replies import Answer
from anabranch.disk.real import readable_by_all
from anabranch.errors import ConfigError
from anabranch.language.grammar.statements import CreateSecret, Drop
from anabranch.language.source import Script, Span
from anabranch.plan.catalog import AnyDef
from anabranch.plan.spec import Secret, secrets_in, with_secrets

T = TypeVar("T")


class ScriptSecrets:
    """`kept` are the secrets that exist before the script; if None, that is not known, and nothing
    is looked up.
    """

    def __init__(self, script: Script, kept: Mapping[str, Kept] | None, base: str) -> None:
        self._script = script
        self._looks = kept is not None
        self._before = dict(kept or {})
        self._base = Path(base)
        self._written: dict[str, str] = {}
        """Written into the script → the name that it is given."""
        self.begin_again()

    def begin_again(self) -> None:
        """Begins again: the statements are going to be checked once more."""
        self.forget: list[str] = []
        self.keep = {name: Kept(value=value) for value, name in self._written.items()}
        self._now = Secrets()
        self._now.change(self._before | self.keep)

    @property
    def known(self) -> dict[str, Kept] | None:
        return self._now.known() if self._looks else None

    def create(self, statement: CreateSecret) -> Answer:
        name, span = statement.name, statement.name_span
        if name.startswith("#"):
            raise self._script.error(span, "the name of a secret does not begin with #")
        if self._find(name):
            message = f"there is a secret {name} already"
            raise self._script.error(span, message, f"Write DROP SECRET {name} first.")
        kept, note = self._kept(statement)
        if self._looks:
            self._told(span, partial(kept.read, f"secret {name}"))
        self._now.change({name: kept})
        self.keep[name] = kept
        return Answer("line", f"secret {name} created{note}")

    def _kept(self, statement: CreateSecret) -> tuple[Kept, str]:
        match statement.origin:
            case "env":
                return Kept(env=statement.source), ""
            case "given":
                return Kept(value=statement.source), ""
        path = (self._base / statement.source).absolute()
        open_to_all = path.is_file() and readable_by_all(path)
        note = f". Every user of this machine can read {path}" if open_to_all else ""
        return Kept(file=str(path)), note

    def drop(self, statement: Drop, known: Mapping[str, AnyDef]) -> Answer:
        name = self._find(statement.name)
        if name is None and statement.if_exists:
            return Answer("line", f"there is no secret {statement.name}")
        if name is None:
            message = f"there is no secret {statement.name}"
            remedy = nearest(statement.name, self._now.names(), "There are")
            raise self._script.error(statement.name_span, message, remedy)
        if users := [one for one in known.values() if self._uses(one, name)]:
            drops = " ".join(f"DROP {_kind(one)} {one.name};" for one in users)
            message = f"secret {name} is used by {', '.join(one.name for one in users)}"
            raise self._script.error(statement.name_span, message, f"Drop them first: {drops}")
        self._now.change({}, [name])
        self.forget.append(name)
        self.keep.pop(name, None)
        return Answer("line", f"secret {name} dropped")

    def show(self) -> Answer:
        rows = tuple((name,) for name in self._now.names())
        return Answer("table", columns=("secret",), rows=rows)

    def filled(self, value: T, span: Span) -> T:
        """The value with its secrets filled in, as sites need it. Raises ScriptError if one does
        not exist.
        """
        return self._told(span, partial(self._now.filled, value)) if self._looks else value

    def _told(self, span: Span, do: Callable[[], T]) -> T:
        try:
            return do()
        except ConfigError as error:
            message = f"{error.place}: {error.message}".removeprefix(": ")
            raise self._script.error(span, message, error.remedy) from None

    def sealed(self, value: T) -> T:
        """The value with names alone, as the catalog has it; a secret that was written out is kept
        apart, too.
        """
        return with_secrets(value, self._seal)

    def _seal(self, secret: Secret) -> Secret:
        name = secret.name
        if not name:
            name = self._written.setdefault(secret.value, f"#{uuid4().hex}")
            self.keep[name] = Kept(value=secret.value)
            self._now.change({name: self.keep[name]})
        return secret.model_copy(update={"name": name, "value": ""})

    def _find(self, name: str) -> str | None:
        return next((one for one in self._now.names() if one.lower() == name.lower()), None)

    def _uses(self, definition: AnyDef, name: str) -> bool:
        return any(one.name.lower() == name.lower() for one in secrets_in(definition))


def _kind(definition: AnyDef) -> str:
    return "QUERY" if definition.kind == "approximate" else definition.kind.upper()
