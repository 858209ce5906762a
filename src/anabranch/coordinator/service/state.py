"""The state folder of a running system: other commands find its coordinator by it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from pathlib import Path
from typing import Any, TextIO

from anabranch.config.address import read_address
from anabranch.config.cluster import ClusterConfig
from anabranch.disk.real import RealFolder, readable_by_all
from anabranch.errors import ConfigError, SetupError, SiteError, StorageError
from anabranch.link.gate import Credentials
from anabranch.link.peer import Peer


def read_token(path: Path) -> str:
    try:
        token = path.read_bytes().strip().decode("ascii", errors="replace")
    except OSError as error:
        raise ConfigError(
            f"cannot read the token file: {error.strerror}",
            place=str(path),
            remedy="Name the file with the cluster's token, which every site needs.",
        ) from None
    if not token:
        remedy = "Write a long random text into it, the same on every site."
        raise ConfigError("the token file is empty", place=str(path), remedy=remedy)
    if not re.fullmatch(r"[!-~]+", token):
        raise ConfigError(
            "this is no token: it has other characters than letters, digits and punctuation",
            place=str(path),
            remedy="Restore it; or write another, the same on every site: a line of long random"
            " text.",
        )
    return token


def exposed(token_file: str | Path | None) -> str:
    """A warning if others can read the file with the cluster's token; else empty."""
    if token_file is None or not readable_by_all(Path(token_file)):
        return ""
    return (
        f"warning: every user of this machine can read {token_file}, and who has the token can run"
        f" code at every site. Write: chmod 600 {token_file}"
    )


def credentials_for(cluster: ClusterConfig, state: Path) -> Credentials:
    """The cluster's token, or a new one for this state folder; readable by its owner alone."""
    security = cluster.security
    given = Path(security.token_file) if security.token_file else None
    path = given or state / "token"
    if given is None and not path.exists():
        RealFolder(state).replace(path.name, secrets.token_urlsafe(32).encode())
    return Credentials(read_token(path), security.tls_cert, security.tls_key, security.tls_ca)


def claim(state: Path) -> TextIO:
    """Claims this folder for as long as the returned file is open, or this process lives. Raises
    SetupError if another coordinator has it.
    """
    try:
        file = (state / "lock").open("a")
    except OSError as error:
        raise StorageError(
            error.strerror or str(error),
            place=str(state / "lock"),
            remedy="See that the disk has room and that this user may write there.",
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise SetupError(
            f"a coordinator is up already with its state in {state.resolve()}",
            remedy="Use it, stop it with `anabranch down`, or choose another folder with --state.",
        ) from None
    return file


def write_endpoint(
    state: Path,
    address: str,
    credentials: Credentials,
    token_file: str | None = None,
    http: str | None = None,
) -> None:
    """Writes where the coordinator is, for `find_coordinator`, and its HTTP API, if it has one. The
    token stays in its own file.
    """
    endpoint = {
        "address": address,
        "http": http,
        "pid": os.getpid(),
        "tls_ca": credentials.tls_ca,
        "token_file": str(Path(token_file).resolve()) if token_file else None,
    }
    RealFolder(state).replace("coordinator.json", json.dumps(endpoint).encode())


def find_coordinator(state: Path) -> Peer:
    """The coordinator whose state folder this is. Raises SiteError if none was ever started."""
    return Peer("the coordinator", *endpoint_in(state))


def endpoint_in(state: Path) -> tuple[str, Credentials]:
    """The coordinator's address, and the credentials for calling it."""
    endpoint = _endpoint(state)
    return endpoint["address"], _credentials(state, endpoint)


def http_in(state: Path) -> tuple[str, Credentials]:
    """The address of the coordinator's HTTP API, with credentials. Raises SiteError if it has
    none.
    """
    endpoint = _endpoint(state)
    if not endpoint.get("http"):
        remedy = "Start it without `--http off`."
        raise SiteError("the coordinator was started without its HTTP API", remedy=remedy)
    return endpoint["http"], _credentials(state, endpoint)


def _endpoint(state: Path) -> dict[str, Any]:
    try:
        endpoint: dict[str, Any] = json.loads((state / "coordinator.json").read_bytes())
        address, pid = read_address(endpoint["address"]), int(endpoint["pid"])
    except OSError:
        raise SiteError(
            f"no coordinator has its state in {state.resolve()}",
            remedy="Start one with `anabranch up`, or point at another folder with --state.",
        ) from None
    except (ValueError, KeyError, TypeError, ConfigError):
        raise SiteError(
            "this file is damaged",
            place=str(state / "coordinator.json"),
            remedy="Remove it; `anabranch up` writes it anew.",
        ) from None
    if address.loopback and not _runs(pid):
        raise SiteError(
            f"the coordinator (process {pid}) has died without stopping",
            remedy="Sites with processes of their own go on. Start it again with `anabranch up`,"
            " which takes them over; `anabranch down` then stops all.",
        )
    return endpoint


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _credentials(state: Path, endpoint: dict[str, Any]) -> Credentials:
    token = endpoint.get("token_file") or state / "token"
    return Credentials(read_token(Path(token)), tls_ca=endpoint.get("tls_ca"))
