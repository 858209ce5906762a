"""The command line called in this process, and a coordinator that only remembers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anabranch.cli import main
from anabranch.cli.queries import sql
from anabranch.coordinator.requests import Execute
from anabranch.coordinator.scripts.replies import Answer
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
    asked: list[Execute] = field(default_factory=list)

    def send(self, message: Execute, timeout_s: float) -> tuple[Answer, ...]:
        self.asked.append(message)
        if self.error:
            raise self.error
        if message.text == "SHOW SITES;":
            return (Answer("table", rows=(("a", "host:1", "up"),)),)
        return (Answer("line", "ok"),)

    def close(self) -> None:
        pass

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.asked]


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> FakeCoordinator:
    """What every state folder leads to."""
    fake = FakeCoordinator()

    def find(state: Path) -> FakeCoordinator:
        return fake

    monkeypatch.setattr(sql, "find_coordinator", find)
    return fake
