"""Signals that end a command."""

from __future__ import annotations

import logging
import signal
from typing import Any, NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP arrived: the command ends, even one in which Ctrl-C only clears the
    line.
    """


def _terminate(number: int, frame: Any) -> NoReturn:
    raise Terminated


def stop_cleanly_on_signals() -> None:
    """SIGTERM and SIGHUP unwind the program like Ctrl-C, so that nothing is left running. So does
    SIGINT if a shell has started us in the background with SIGINT ignored. SIGHUP stays ignored if
    somebody (nohup) has it ignored, so that we stay when the terminal goes.
    """
    logging.getLogger().addFilter(_is_no_interrupt)  # py4j would print each with its traceback
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _terminate)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    kind = record.exc_info[0] if record.exc_info else None
    return not (kind and issubclass(kind, KeyboardInterrupt))
