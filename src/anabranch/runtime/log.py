"""The log: one JSON object a line, with the query, task, site and epoch that it is about.

Nothing is written before a process says where (`log_to`), and nothing for single tuples: the log
holds changes of what runs where.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from anabranch.hidden import shown

_LOGGER = logging.getLogger("anabranch")
_LOGGER.addHandler(logging.NullHandler())
_LOGGER.propagate = False
_FILE_BYTES, _FILES = 10_000_000, 3
FIELDS = ("time", "level", "event", "text", "site", "query", "task", "epoch")
"""What a line may hold, in this order; what it is not about is left out."""


def note(event: str, text: str, *, wrong: bool = False, **about: Any) -> None:
    """Writes an event. `about` holds the site, query, task and epoch, as far as they are known."""
    level = logging.ERROR if wrong else logging.INFO
    if _LOGGER.isEnabledFor(level):
        _LOGGER.log(level, text, extra={"event": event, "about": about})


def log_to(path: Path) -> logging.Handler:
    """Appends to the file from now on. At 10 MB a new file begins, and the last two are kept."""
    handler = RotatingFileHandler(
        path, maxBytes=_FILE_BYTES, backupCount=_FILES - 1, encoding="utf-8", delay=True
    )
    handler.setFormatter(_JsonLines())
    _LOGGER.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    return handler


def log_no_more(handler: logging.Handler) -> None:
    _LOGGER.removeHandler(handler)
    handler.close()
    if all(isinstance(one, logging.NullHandler) for one in _LOGGER.handlers):
        _LOGGER.setLevel(logging.NOTSET)


def print_trace(error: BaseException) -> None:
    """Prints what went wrong and where on stderr, without the passwords that this process knows."""
    print(shown("".join(traceback.format_exception(error))), end="", file=sys.stderr)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        known = {
            "time": f"{clock}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.__dict__.get("event", ""),
            "text": shown(record.getMessage()),
            **record.__dict__.get("about", {}),
        }
        kept = {key: known[key] for key in FIELDS if known.get(key) not in (None, "")}
        return json.dumps(kept, ensure_ascii=False)
