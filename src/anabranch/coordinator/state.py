"""The state folder of a running system: how other commands find its coordinator."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

from anabranch.config.cluster import Cluster
from anabranch.errors import ConfigError, SiteError
from anabranch.link.gate import Credentials
from anabranch.link.peer import Peer


def read_token(path: Path) -> str:
    try:
        token = path.read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"cannot read the token file: {error.strerror}",
            place=str(path),
            remedy="Name the file with the cluster's token, which every site needs.",
        ) from None
    if not token:
        remedy = "Write a long random text into it, the same on every site."
        raise ConfigError("the token file is empty", place=str(path), remedy=remedy)
    return token


def credentials_for(cluster: Cluster, state: Path) -> Credentials:
    """The cluster's token, or one made for this state folder; readable by its owner alone."""
    security = cluster.security
    given = Path(security.token_file) if security.token_file else None
    path = given or state / "token"
    if given is None and not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
    return Credentials(read_token(path), security.tls_cert, security.tls_key, security.tls_ca)


def write_endpoint(
    state: Path, address: str, credentials: Credentials, token_file: str | None = None
) -> None:
    """Where the coordinator is, for `find_coordinator`. The token stays in its own file."""
    endpoint = {
        "address": address,
        "pid": os.getpid(),
        "tls_ca": credentials.tls_ca,
        "token_file": str(Path(token_file).resolve()) if token_file else None,
    }
    temporary = state / "coordinator.json.new"
    temporary.write_text(json.dumps(endpoint))
    temporary.replace(state / "coordinator.json")


def find_coordinator(state: Path) -> Peer:
    """The coordinator whose state folder this is. Raises SiteError if none was ever started."""
    return Peer("the coordinator", *endpoint_in(state))


def endpoint_in(state: Path) -> tuple[str, Credentials]:
    """Where the coordinator of this state folder is, and what it takes to call it."""
    try:
        endpoint = json.loads((state / "coordinator.json").read_text())
    except OSError:
        raise SiteError(
            f"no coordinator has its state in {state.resolve()}",
            remedy="Start one with `anabranch up`, or point at another folder with --state.",
        ) from None
    except ValueError:
        raise SiteError(
            "this file is damaged",
            place=str(state / "coordinator.json"),
            remedy="Remove it; `anabranch up` writes it anew.",
        ) from None
    token = endpoint.get("token_file") or state / "token"
    return endpoint["address"], Credentials(read_token(Path(token)), tls_ca=endpoint.get("tls_ca"))
