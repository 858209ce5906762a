"""Explains a failure inside Spark in one line."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JError)
"""All that a call into Spark raises when Spark refuses or fails."""

_WRAPPING = re.compile(r".*terminated with exception: |.*most recent failure: .*?Exception: ")
_IN_PYTHON = "An exception was thrown from the Python worker"
_CODE = re.compile(r"^\[[A-Z0-9_.]+\] ")
_STATE = re.compile(r" SQLSTATE: .*$")
_SETTING = re.compile(r" If necessary,? set \S+ to \S+ to bypass this error\.?")
"""Results would differ from site to site; what a query can do about it is said before."""


def cause(error: BaseException) -> str:
    """The innermost message of `error`, its first line, without Spark's codes and stack traces."""
    lines = [line.strip() for line in _innermost(error).splitlines() if line.strip()]
    if lines and _IN_PYTHON in lines[0]:  # what follows is a stack trace, its last line the message
        lines = lines[-1:]
    text = _WRAPPING.sub("", lines[0]) if lines else type(error).__name__
    return plain(_CODE.sub("", text))


def plain(text: str) -> str:
    """Spark's `text` without its code, and without the setting of Spark that it proposes."""
    return _SETTING.sub("", _STATE.sub("", text)).rstrip(" .")


def _innermost(error: BaseException) -> str:
    if not isinstance(error, Py4JJavaError):
        return str(error)
    java = error.java_exception
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.getMessage() or java.toString())
