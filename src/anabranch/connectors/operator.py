"""What statements may use of the machines of sites: nothing, unless the operator allows it in the
`[security]` table of cluster.toml.

The environment carries it to the processes that a site starts.
"""

from __future__ import annotations

import os
from pathlib import Path

from anabranch.config.model import Security
from anabranch.errors import ConfigError

_FILES, _PASSWORDS = "ANABRANCH_CLIENT_FILES", "ANABRANCH_ENVIRONMENT_PASSWORDS"


def let_use(security: Security) -> None:
    """Allows it from now on, in this process and those that it starts."""
    for key, value in (
        (_FILES, security.client_files or ""),
        (_PASSWORDS, "yes" if security.environment_passwords else ""),
    ):
        if value:
            os.environ[key] = value
        else:
            os.environ.pop(key, None)


def environment_passwords() -> bool:
    """Whether PGPASSWORD, ~/.pgpass and services may go to a server that a statement names."""
    return bool(os.environ.get(_PASSWORDS))


def check_file(owner: str, option: str, path: str) -> None:
    """Raises ConfigError for a file outside of the operator's folder, links followed; and for any
    file if there is no such folder.
    """
    folder = os.environ.get(_FILES)
    if not folder:
        raise ConfigError(
            f"{owner}() may name no file in {option}",
            remedy="Have the operator set client_files in [security] to the folder of such files.",
        )
    if not Path(path).resolve().is_relative_to(Path(folder).resolve()):
        raise ConfigError(
            f"{owner}() may name no file outside of {folder} in {option}",
            remedy="Put it there: client_files in [security] names this folder.",
        )
