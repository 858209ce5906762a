"""Text from data, headers and names as it may be shown on a terminal."""

from __future__ import annotations

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""All that moves a cursor, rings, colours or turns the direction of writing; not \\t and \\n."""


def printable(text: str) -> str:
    """`text` with control characters written out, `\\x1b` for an escape: none reaches the terminal
    as what it is."""
    return _CONTROL.sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
