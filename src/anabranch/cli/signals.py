"""Signals that end a command."""

from __future__ import annotations

import signal
from typing import Any, NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: the command ends, even one in which Ctrl-C only clears the line."""


def _terminate(number: int, frame: Any) -> NoReturn:
    raise Terminated


def stop_cleanly_on_signals() -> None:
    """SIGTERM and SIGHUP unwind the program like Ctrl-C, so that nothing is left behind."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGHUP, _terminate)
