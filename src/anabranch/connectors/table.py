"""What every table reader is: something outside whose whole content can be read repeatedly.

A stream is read once and goes on; a table has a content at any moment, which changes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.connectors.options import DURATION, Connector, Option, undefined

REFRESH_US = 10_000_000


def refresh_option(help: str, default: int | None = REFRESH_US) -> Option:
    return Option("refresh", DURATION, help, default)


@dataclass(frozen=True)
class TableContext:
    """All that a reader may know. `schema` holds the declared columns."""

    table: str
    schema: pa.Schema
    options: Mapping[str, Any]
    base: Path
    resume: bool = False
    """It goes on after a restart: what it reads from need not be there yet."""


class TableReader(Connector):
    """Something outside with a content at any moment."""

    def __init__(self, context: TableContext) -> None:
        """Checks options and that the table is there; raises ConfigError or SourceError. Nothing is
        read and nothing is started.
        """

    @classmethod
    def lacking(cls) -> list[str]:
        return undefined(cls, TableReader, ["read", "wait", "close"])

    def read(self, stopped: threading.Event) -> pa.Table:
        """The whole content as it is now, with exactly the columns of `schema` in its order and
        types. Raises SourceError if a value does not fit, and soon after `stopped` is set;
        SourceAway if it may be read later.
        """
        raise NotImplementedError

    def wait(self, stopped: threading.Event, timeout_s: float) -> bool:
        """True as soon as the content may have changed since the last `read` began; False after
        `timeout_s`, or soon after `stopped` is set."""
        raise NotImplementedError

    def close(self) -> None:
        """Releases connections. `read` and `wait` open them again. Calling it again does no
        harm.
        """
        raise NotImplementedError
