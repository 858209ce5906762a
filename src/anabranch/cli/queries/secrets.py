"""A secret that is typed, or read from a pipe: it stands in no script and no history."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from getpass import getpass

from anabranch.api.text import literal
from anabranch.errors import ConfigError
from anabranch.language.source import Script

_ALONE = re.compile(r"\s*(CREATE\s+SECRET\s+(`[^`]+`|\w+))\s*;?\s*", re.IGNORECASE)


def with_secret(script: Script) -> Script:
    """`CREATE SECRET name` completed with the secret that is typed or that stdin brings; any other
    script unchanged.
    """
    found = _ALONE.fullmatch(script.text)
    if found is None:
        return script
    if sys.stdin.isatty():
        value = getpass(f"secret {found[2]} (not shown): ")
    else:
        value = sys.stdin.read().removesuffix("\n")
    if not value:
        raise ConfigError("a secret cannot be empty", place=found[1])
    return replace(script, text=f"{found[1]} AS {literal(value, 'secret')};")
