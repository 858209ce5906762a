"""`anabranch site`: one site in this process, which joins a coordinator elsewhere; or a process
that waits, with its Spark up, to become a site that has died.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic_core import PydanticCustomError

from anabranch.cli.show.tables import err
from anabranch.config.address import HostPort, read_address
from anabranch.config.cluster import ClusterConfig, SiteConfig
from anabranch.config.model import SiteSettings
from anabranch.disk.real import own_folder
from anabranch.errors import ConfigError
from anabranch.link.gate import Credentials, check_address
from anabranch.link.message import PROTOCOL
from anabranch.link.messages import JoinCluster
from anabranch.link.peer import Peer
from anabranch.runtime.log import log_to, note
from anabranch.scratch import scratch_folder
from anabranch.site.member import StateFolder
from anabranch.site.site import Site
from anabranch.spark.jvm import jvm
from anabranch.spark.own import OwnSpark
from anabranch.spark.session import warm_workers
from anabranch.version import VERSION

PARENT_CHECK_S = 0.5


def address_of(option: str, value: str) -> HostPort:
    """The address in the `value` of a command's `option`. Raises ConfigError if it is none."""
    try:
        return read_address(value)
    except PydanticCustomError as error:
        said = error.context or {}
        raise ConfigError(said["message"], place=option, remedy=said["remedy"]) from None


def join(name: str, coordinator: Peer, changes: dict[str, HostPort]) -> tuple[ClusterConfig, int]:
    """The cluster as the coordinator knows it, with this site in it as asked for here, and this
    site's incarnation number.
    """
    joined = coordinator.send(JoinCluster(name, os.getpid(), PROTOCOL, VERSION))
    cluster = joined.cluster
    config = cluster.sites.get(name) or SiteConfig(name=name)
    sites = cluster.sites | {name: config.model_copy(update=changes)}
    return cluster.model_copy(update={"sites": sites}), joined.life


class SiteSpark(OwnSpark):
    """The Spark of a process that is to be a site. The process ends when its JVM does."""

    def __init__(self, name: str, config: SiteSettings, scratch: Path) -> None:
        self.name = name
        super().__init__(config, name, scratch=scratch, last_words=self._last_words)

    def _last_words(self, why: str) -> None:
        err.print(f"error: site {self.name}: {why}")


def run_site(
    name: str,
    coordinator_address: str,
    credentials: Credentials,
    *,
    listen: str | None = None,
    address: str | None = None,
    parent: int | None = None,
    state: Path | None = None,
    spark: SiteSpark | None = None,
) -> None:
    """Runs the site until the process is told to stop, or `parent` is gone. `spark` is a session
    that is up already.
    """
    where = address_of("--coordinator", coordinator_address)
    options = {"listen": listen, "address": address}
    changes = {key: address_of(f"--{key}", value) for key, value in options.items() if value}
    coordinator = Peer("the coordinator", str(where), credentials)
    cluster, life = join(name, coordinator, changes)
    config = cluster.sites[name]
    for place in ("listen", "address"):
        _check_guarded(getattr(config, place), credentials, cluster, f"--{place}")
    check_address(str(config.listen))  # before Spark, which takes its time
    held = StateFolder.hold(state, name) if state else None
    spark = spark or SiteSpark(name, config, _scratch(state, tied=parent is not None))
    spark.name = name
    try:
        if state:
            log_to(state / "log.jsonl")
        site = Site(name, cluster, credentials, spark.session, held)
        site.service.member.life = life
        try:
            site.report_to(coordinator, cluster.report_interval_s)
            err.print(f"site {name} is up at {site.address}")
            note("up", f"site {name} is up at {site.address}", site=name)
            _wait(parent, site)
        finally:
            jvm.closing()
            site.close()
    finally:
        spark.close()


def _check_guarded(
    address: HostPort | None, credentials: Credentials, cluster: ClusterConfig, place: str
) -> None:
    """Raises ConfigError for an address that other machines can reach without a token, or without
    TLS unless the cluster allows that knowingly. `up` asks the same of its addresses.
    """
    if address is None or address.loopback:
        return
    if not credentials.token:
        raise ConfigError(
            f"{address} can be reached from other machines, but there is no token",
            place=place,
            remedy="Give it with --token-file or $ANABRANCH_TOKEN.",
        )
    tls = credentials.tls_cert and credentials.tls_key
    if not (tls or cluster.security.plaintext):
        raise ConfigError(
            f"{address} can be reached from other machines, but there is no TLS",
            place=place,
            remedy="Give --tls-cert and --tls-key, or set plaintext = true in [security] of the"
            " coordinator's cluster.toml if the network is trusted.",
        )


def own_state(name: str) -> Path:
    """The state folder of a site that is started by hand. It belongs to this user, wherever the
    site is started.
    """
    home = os.environ.get("XDG_STATE_HOME")
    base = Path(home) if home else Path.home() / ".local" / "state"
    return base / "anabranch" / "sites" / quote(name, safe="")


def _scratch(state: Path | None, *, tied: bool) -> Path:
    """The folder that Spark may write in. A killed site cannot clean up: whoever removes the state
    of a tied site removes this too, and otherwise the next site of this name does.
    """
    if state is None:
        return scratch_folder()
    own_folder(state)
    if tied:
        return Path(tempfile.mkdtemp(prefix="spark-", dir=state))
    note, scratch = state / "scratch", scratch_folder()
    if note.exists():
        shutil.rmtree(note.read_text(), ignore_errors=True)
    note.write_text(str(scratch))
    return scratch


def _wait(parent: int | None, site: Site) -> None:
    never = threading.Event()
    while not never.wait(PARENT_CHECK_S):
        if site.dismissed:
            err.print(f"error: {site.dismissed.line()}")
            return
        if parent is not None and os.getppid() != parent:
            return


def credentials_from(
    token_file: Path | None, tls_cert: str | None, tls_key: str | None, tls_ca: str | None
) -> Credentials:
    from anabranch.coordinator.service.state import exposed, read_token

    if warning := exposed(token_file) if token_file and token_file.exists() else "":
        err.print(warning, markup=False)
    token = read_token(token_file) if token_file else os.environ.get("ANABRANCH_TOKEN", "")
    return Credentials(token, tls_cert, tls_key, tls_ca)


def run_spare(token: str) -> None:
    """Reads orders on standard input, a line each: which kind of Spark to start, and, if it is ever
    needed, which site to become. It ends with the process that gives the orders.
    """
    if (kind := _order()) is None:
        return
    spark = SiteSpark("a spare", SiteSettings(**kind), scratch_folder())
    try:
        warm_workers(spark.session)
        if order := _order():
            _become(order, token, spark)
    finally:
        spark.close()


def _become(order: dict[str, Any], token: str, spark: SiteSpark) -> None:
    _write_to(Path(order.pop("log")))
    state, coordinator, name = (order.pop(key) for key in ("state", "coordinator", "site"))
    own_folder(Path(state))
    run_site(name, coordinator, Credentials(token, **order), state=Path(state), spark=spark)


def _order() -> dict[str, Any] | None:
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def _write_to(log: Path) -> None:
    """From now on all output of this process goes to the site's log. (The JVM's output does
    not.)
    """
    with log.open("ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
