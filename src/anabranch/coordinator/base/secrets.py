"""The values of secrets, kept apart from the catalog, for its owner's eyes only.

A secret in the environment or in a file is read whenever a site needs it; only its place is kept
here. Secrets that somebody typed are kept as they are, in a file that only the owner can read.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

from anabranch.disk.folder import Folder
from anabranch.errors import ConfigError, StorageError
from anabranch.plan.spec import Secret, Spec, secrets_in, with_secrets

T = TypeVar("T")

FILE = "secrets.json"
_LONGEST = 64_000
"""Bytes of a file that is a secret."""


class Kept(Spec):
    """Where a secret is found: one of the three."""

    env: str = ""
    file: str = ""
    value: str = ""

    def read(self, shown: str) -> str:
        """The value. Raises ConfigError if it is not there."""
        if self.env:
            return self._nonempty(os.environ.get(self.env, ""), shown, f"variable {self.env}")
        if self.file:
            return self._nonempty(self._content(shown), shown, self.file)
        return self.value

    def _content(self, shown: str) -> str:
        try:
            with Path(self.file).open(encoding="utf-8") as file:
                return file.read(_LONGEST).removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError(
                f"{shown} cannot be read: {reason}",
                place=self.file,
                remedy="The coordinator reads it on its machine, whenever a site needs it.",
            ) from None

    def _nonempty(self, value: str, shown: str, where: str) -> str:
        if not value:
            raise ConfigError(
                f"{shown} is not there: {where} of the coordinator is empty or missing",
                remedy="Set it where `anabranch up` is started.",
            )
        return value


class Secrets:
    """The secrets of one coordinator, by name. Names are compared as Spark does, without regard to
    case. Each change is durable when the call returns. Several threads may use it.
    """

    def __init__(self, folder: Folder | None = None) -> None:
        """`folder` belongs to its owner; without one nothing outlives the process. Raises
        StorageError if it cannot be read.
        """
        self._folder = folder
        self._lock = threading.Lock()
        self._kept: dict[str, Kept] = {}
        if folder and (text := folder.read(FILE)):
            try:
                read = json.loads(text)
                self._kept = {name: Kept.model_validate(one) for name, one in read.items()}
            except ValueError:
                raise StorageError(
                    "this file is damaged",
                    place=folder.place(FILE),
                    remedy="Restore it, or remove it and create the secrets again.",
                ) from None

    def names(self) -> list[str]:
        """The names that users gave."""
        return sorted(name for name in self._kept if not _unnamed(name))

    def known(self) -> dict[str, Kept]:
        return dict(self._kept)

    def change(self, add: Mapping[str, Kept], drop: Collection[str] = ()) -> None:
        with self._lock:
            kept = {name: one for name, one in self._kept.items() if name not in drop}
            kept |= add
            if kept != self._kept:
                if self._folder:
                    body = {
                        name: one.model_dump(exclude_defaults=True) for name, one in kept.items()
                    }
                    self._folder.replace(FILE, json.dumps(body).encode())
                self._kept = kept

    def keep_only(self, used: object) -> None:
        """Keeps, of the secrets without a name, only those that these definitions use."""
        unnamed = {name for name in self._kept if _unnamed(name)}
        if unnamed:
            self.change({}, unnamed - {one.name for one in secrets_in(used)})

    def filled(self, value: T) -> T:
        """A definition or message with the values of its secrets. Raises ConfigError if a value is
        missing.
        """
        return with_secrets(value, self._with_value)

    def _with_value(self, secret: Secret) -> Secret:
        if secret.value:
            return secret
        kept = find(self._kept, secret.name)
        if kept is None:
            raise ConfigError(f"there is no secret {secret}", remedy=create(secret.name))
        return secret.model_copy(update={"value": kept.read(str(secret))})


def find(kept: Mapping[str, Kept], name: str) -> Kept | None:
    same = (one for other, one in kept.items() if other.lower() == name.lower())
    return kept.get(name) or next(same, None)


def create(name: str) -> str:
    """The remedy where a secret does not exist."""
    return f"Write CREATE SECRET {name} FROM env('…'), FROM file('…') or AS '…'."


def _unnamed(name: str) -> bool:
    """Whether the secret was written into a statement; no name of a user's begins like that."""
    return name.startswith("#")
