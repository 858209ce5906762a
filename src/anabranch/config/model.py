"""A cluster as the rest of the system sees it: frozen, complete, and sent to sites as JSON, with
what holds unless a user says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from anabranch.config.address import Address, HostPort
from anabranch.config.problems import Bytes, SparkConf, did_you_mean, problem
from anabranch.errors import ConfigError

ANY_FREE_PORT = HostPort("127.0.0.1", 0)
_SITE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def _one_of(what: str, *known: str) -> BeforeValidator:
    def read(value: Any) -> Any:
        if value in known:
            return value
        remedy = did_you_mean(str(value), known, title="Use one of")
        raise problem(f"unknown {what} {value!r}", remedy)

    return BeforeValidator(read)


Durability = Annotated[Literal["power", "process"], _one_of("durability", "power", "process")]


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SiteSettings(Frozen):
    """The settings of a site, each with its default."""

    listen: Address = ANY_FREE_PORT
    """Where the gate binds."""
    address: Address | None = None
    """What others connect to, if that is not `listen`: behind NAT or a proxy."""
    http: Address | None = None
    """Where its health and its figures are told over HTTP; nowhere if left out."""
    isolation: Annotated[
        Literal["thread", "process"], _one_of("isolation", "thread", "process")
    ] = "thread"
    """`thread`: shares the coordinator's process and Spark. `process`: has its own."""
    master: str = Field(default="local[2]", min_length=1)
    conf: SparkConf = {}
    slots: int = Field(default=1, ge=1)
    """Task instances run at once."""
    schedule: Annotated[Literal["edf", "fifo"], _one_of("schedule", "edf", "fifo")] = "edf"
    """Which runs next: the one due first, or the one with the oldest tuple."""
    batch: int = Field(default=1_000_000, ge=1)
    """Tuples that one instance takes at most. What they weigh is limited by the queues."""
    disk: Bytes = Field(default=10_000_000_000, ge=0)
    """Bytes that streams may take on its disk for those who read them later."""
    disk_full: Annotated[Literal["wait", "let go"], _one_of("disk_full", "wait", "let go")] = "wait"
    """What gives when that is used up: the source waits, or the oldest goes of what is only kept
    for those who come later."""
    state: Annotated[Bytes, Field(gt=0)] | None = None
    """Bytes that windows may take in the memory of its process; None: half of the machine's."""
    plans: Annotated[Literal["auto", "kept", "job"], _one_of("plans", "auto", "kept", "job")] = (
        "auto"
    )
    """How Spark evaluates expressions: by plans that are kept, by a job per instance, or by what
    was measured to be quicker."""


class SiteConfig(SiteSettings):
    name: str

    @property
    def reached_at(self) -> HostPort:
        """The address that others connect to; port 0 means the port that the gate will have got."""
        return self.address or self.listen

    @property
    def remote(self) -> bool:
        """Whether the site is on another machine, where it is started by hand, not by the
        coordinator.
        """
        return not self.reached_at.loopback

    @property
    def shares_process(self) -> bool:
        return self.isolation == "thread" and not self.remote


class LinkConfig(Frozen):
    """A network to emulate on what `sender` sends to `receiver`."""

    sender: str
    receiver: str
    delay_us: int = 0
    jitter_us: int = 0
    bandwidth: float | None = None
    """Bytes a second; None for no limit."""

    @property
    def emulated(self) -> bool:
        return bool(self.delay_us or self.jitter_us or self.bandwidth)

    def reversed(self) -> LinkConfig:
        return self.model_copy(update={"sender": self.receiver, "receiver": self.sender})


class Security(Frozen):
    """Paths of what gates prove themselves and encrypt with; never the secrets themselves."""

    token_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    plaintext: bool = False
    """Leaving this machine without TLS has been chosen knowingly."""
    client_files: str | None = None
    """The folder whose files, certificates and keys, options of connectors may name."""
    environment_passwords: bool = False
    """PGPASSWORD and ~/.pgpass of sites may be sent to any server that a statement names."""

    @property
    def tls(self) -> bool:
        return self.tls_cert is not None and self.tls_key is not None

    def below(self, folder: PurePath) -> Security:
        """The same, with relative paths starting from `folder`."""
        said = {"plaintext", "environment_passwords"}
        paths = self.model_dump(exclude=said, exclude_none=True)
        return self.model_copy(update={key: str(folder / path) for key, path in paths.items()})


class PlacementSettings(Frozen):
    """How queries without AT get their sites."""

    method: str = "best"
    sample_us: int = 5_000_000
    """So often the network and the rates are looked at."""
    recent: int = 12
    """So many samples count when what runs is placed again."""
    period_us: int = 900_000_000
    samples: int = 100
    """So many periods are kept, each as the mean of its samples: for pockets, and what is new."""
    replan_us: int = 60_000_000
    """What runs is placed again so often; 0 for never."""


HEARTBEATS_PER_REPORT = 2
"""Sites report to the coordinator every so many heartbeat intervals."""


class ClusterConfig(Frozen):
    """All sites and links, and how closely they watch each other."""

    ack_interval_us: int = 250_000
    heartbeat_interval_us: int = 500_000
    missed_heartbeats: int = 4
    """A site is gone after so many heartbeats in a row have not come."""
    listen: Address = ANY_FREE_PORT
    """Where the coordinator binds."""
    instance_limit_us: int = 30_000_000
    """A task instance that runs longer is stopped, and its query fails."""
    queue_bytes: int = 40_000_000
    """Most that a queue of one stream holds."""
    durability: Durability = "process"
    """What sources and restart points on a site's disk outlive: the end of its process, or that of
    its machine, too."""
    spares: int = 0
    """Processes, of each kind of Spark, that wait to become a site whose process has died."""
    models: str = ""
    """The PostgreSQL that keeps what is learnt about approximate queries; empty: a file."""
    security: Security = Security()
    placement: PlacementSettings = PlacementSettings()
    sites: dict[str, SiteConfig] = {}
    links: tuple[LinkConfig, ...] = ()

    @classmethod
    def of_sites(cls, names: Iterable[str]) -> ClusterConfig:
        """The cluster when there is no file: every site in this process, nothing emulated."""
        return cls(sites={check_site_name(name): SiteConfig(name=name) for name in names})

    @property
    def report_interval_s(self) -> float:
        """How often a site reports to the coordinator."""
        return HEARTBEATS_PER_REPORT * self.heartbeat_interval_us / 1e6

    def link(self, sender: str, receiver: str) -> LinkConfig:
        """The emulation from one site to another; none where the file says nothing."""
        for link in self.links:
            if (link.sender, link.receiver) == (sender, receiver):
                return link
        return LinkConfig(sender=sender, receiver=receiver)


def check_site_name(name: str, *, place: str = "") -> str:
    """`name`, if a site may have this name; else raises."""
    if not _SITE_NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a site name",
            place=place,
            remedy="Start with a letter or _ and go on with letters, digits, _ or -.",
        )
    return name


DEFAULT_STATE = Path(".anabranch")
"""Where a running system keeps its state, seen from where it was started."""
YOUNG_JVM = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
"""Where several JVMs share a small machine for a few minutes: their optimising compilers would take
two fifths of the CPU time, and give little back in that time. What runs for long is two or
three times as fast with them."""
