"""The command line called in this process, and a coordinator that only remembers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli import main
from anabranch.cli.queries import sql
from anabranch.errors import AnabranchError


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def anabranch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Ended]:
    """Runs `anabranch` with these arguments."""
    monkeypatch.setattr(main, "stop_cleanly_on_signals", lambda: None)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["anabranch", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.app_main()
        said = capsys.readouterr()
        code = ended.value.code or 0
        assert isinstance(code, int)
        return Ended(code, said.out, said.err)

    return run


@dataclass
class FakeCoordinator:
    """Answers each script with the line `ok`, or with `error`."""

    error: AnabranchError | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)

    def call(self, action: str, timeout_s: float = 10.0, **body: Any) -> list[dict[str, Any]]:
        assert action == "execute"
        self.asked.append(body)
        if self.error:
            raise self.error
        if body["text"] == "SHOW SITES;":
            return [{"kind": "table", "text": "", "columns": (), "rows": [("a", "host:1", "up")]}]
        return [{"kind": "line", "text": "ok", "columns": (), "rows": ()}]

    def close(self) -> None:
        pass

    @property
    def texts(self) -> list[str]:
        return [body["text"] for body in self.asked]


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> FakeCoordinator:
    """What every state folder leads to."""
    fake = FakeCoordinator()

    def find(state: Path) -> FakeCoordinator:
        return fake

    monkeypatch.setattr(sql, "find_coordinator", find)
    return fake
