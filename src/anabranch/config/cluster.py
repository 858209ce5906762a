"""`cluster.toml`: its tables, key by key, and the cluster that they describe: sites, how they
are reached, and the networks to emulate.

Types are strict: `slots = "2"` is a mistake worth telling, not a number.

    [cluster]
    ack_interval = "250ms"          # how often a receiver acknowledges
    heartbeat_interval = "500ms"
    missed_heartbeats = 4           # a site is gone after so many
    listen = "127.0.0.1:0"          # the coordinator
    durability = "process"          # what was kept outlives that, or the machine's "power"
    spares = 0                      # processes that wait to become a site that has died
    models = "postgresql://…"       # keeps what approximate queries learn; left out: a file

    [cluster.queue]
    max_bytes = "40MB"              # most that a queue of one stream holds

    [security]                      # needed as soon as an address is not loopback
    token_file = "token"
    tls_cert = "site.crt"
    tls_key = "site.key"
    tls_ca = "ca.crt"
    plaintext = false               # true: no TLS, knowingly

    [placement]                     # of queries without AT
    method = "best"                 # or "dp", "search", "sbon", "vote"
    sample = "5s"                   # so often the network and the rates are looked at
    recent = 12                     # so many samples count for what runs
    period = "15m"                  # the mean of such a time is a sample for what is to stay
    samples = 100                   # so many of these are kept
    replan = "60s"                  # place again what runs, so often; "0s": never

    [defaults]                      # any key of a site
    master = "local[2]"

    [site.room1]
    listen = "127.0.0.1:7101"       # where the gate binds; port 0: any free one
    address = "127.0.0.1:7101"      # what others connect to, if not listen
    isolation = "thread"            # or "process"
    conf = { "spark.driver.memory" = "1g" }
    slots = 1
    schedule = "edf"                # or "fifo"
    batch = 1000000
    state = "8GB"                   # of windows in memory; half of the machine's if left out
    disk = "10GB"                   # of streams, for readers that are slow or away
    disk_full = "wait"              # or "let go": of the oldest that is kept for later
    plans = "auto"                  # or "kept", "job"

    [[link]]                        # emulation; a link not named has none
    from = "room1"
    to = "centre"
    delay = "20ms"
    jitter = "5ms"
    bandwidth = "10MB/s"
    both = true                     # the way back too

Every key may be left out, `from` and `to` of a link apart; the values above are the defaults where
they have one. `docs/cluster.md` says more of each.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from anabranch.config.address import Address, HostPort
from anabranch.config.model import (
    ClusterConfig,
    Durability,
    LinkConfig,
    PlacementSettings,
    Security,
    SiteConfig,
    SiteSettings,
)
from anabranch.config.problems import (
    Bytes,
    BytesPerSecond,
    Microseconds,
    config_error,
    did_you_mean,
    problem,
)
from anabranch.config.rules import breaches
from anabranch.errors import ConfigError
from anabranch.placement import METHODS

_DEFAULT = ClusterConfig()


class TomlTable(BaseModel):
    """Refuses keys that it does not know, and names the nearest known key."""

    model_config = ConfigDict(frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, table: Any) -> Any:
        keys = [field.alias or name for name, field in cls.model_fields.items()]
        for key in table if isinstance(table, dict) else ():
            if key not in keys:
                raise problem(f"unknown key {key!r}", did_you_mean(key, keys, title="Known keys"))
        return table


class SiteTable(TomlTable, SiteSettings):
    pass


class SecurityTable(TomlTable, Security):
    pass


class QueueTable(TomlTable):
    max_bytes: Bytes = Field(default=_DEFAULT.queue_bytes, gt=0)


class ClusterTable(TomlTable):
    ack_interval: Microseconds = Field(default=_DEFAULT.ack_interval_us, gt=0)
    heartbeat_interval: Microseconds = Field(default=_DEFAULT.heartbeat_interval_us, gt=0)
    missed_heartbeats: int = Field(default=_DEFAULT.missed_heartbeats, ge=1)
    instance_limit: Microseconds = Field(default=_DEFAULT.instance_limit_us, gt=0)
    listen: Address = _DEFAULT.listen
    durability: Durability = _DEFAULT.durability
    spares: int = Field(default=_DEFAULT.spares, ge=0)
    models: str = _DEFAULT.models
    queue: QueueTable = QueueTable()


class PlacementTable(TomlTable):
    method: str = _DEFAULT.placement.method
    sample: Microseconds = Field(default=_DEFAULT.placement.sample_us, gt=0)
    recent: int = Field(default=_DEFAULT.placement.recent, gt=0)
    period: Microseconds = Field(default=_DEFAULT.placement.period_us, gt=0)
    samples: int = Field(default=_DEFAULT.placement.samples, gt=0)
    replan: Microseconds = _DEFAULT.placement.replan_us

    def placement(self) -> PlacementSettings:
        return PlacementSettings(
            method=self.method,
            sample_us=self.sample,
            recent=self.recent,
            period_us=self.period,
            samples=self.samples,
            replan_us=self.replan,
        )

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: str) -> str:
        if method not in METHODS:
            remedy = did_you_mean(method, METHODS, title="There are")
            raise problem(f"unknown placement method {method!r}", remedy)
        return method


class LinkTable(TomlTable):
    sender: str = Field(alias="from")
    receiver: str = Field(alias="to")
    delay: Microseconds = 0
    jitter: Microseconds = 0
    bandwidth: BytesPerSecond | None = Field(default=None, gt=0)
    both: bool = False

    def links(self) -> tuple[LinkConfig, ...]:
        link = LinkConfig(
            sender=self.sender,
            receiver=self.receiver,
            delay_us=self.delay,
            jitter_us=self.jitter,
            bandwidth=self.bandwidth,
        )
        return (link, link.reversed()) if self.both else (link,)


class ClusterFile(TomlTable):
    cluster: ClusterTable = ClusterTable()
    security: SecurityTable = SecurityTable()
    placement: PlacementTable = PlacementTable()
    defaults: SiteTable = SiteTable()
    site: dict[str, SiteTable] = {}
    link: list[LinkTable] = []

    def to_cluster(self) -> ClusterConfig:
        return ClusterConfig(
            ack_interval_us=self.cluster.ack_interval,
            heartbeat_interval_us=self.cluster.heartbeat_interval,
            missed_heartbeats=self.cluster.missed_heartbeats,
            instance_limit_us=self.cluster.instance_limit,
            listen=self.cluster.listen,
            queue_bytes=self.cluster.queue.max_bytes,
            durability=self.cluster.durability,
            spares=self.cluster.spares,
            models=self.cluster.models,
            security=Security(**dict(self.security)),
            placement=self.placement.placement(),
            sites={name: self._site(name, table) for name, table in self.site.items()},
            links=tuple(link for table in self.link for link in table.links()),
        )

    def _site(self, name: str, table: SiteTable) -> SiteConfig:
        """The site's own keys over the defaults; Spark settings one by one."""
        own = {key: getattr(table, key) for key in table.model_fields_set}
        conf = self.defaults.conf | table.conf
        return SiteConfig(**(dict(self.defaults) | own | {"name": name, "conf": conf}))


__all__ = [
    "ClusterConfig",
    "HostPort",
    "LinkConfig",
    "Security",
    "SiteConfig",
    "load_cluster",
    "parse_cluster",
]

_TOML_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def load_cluster(path: Path) -> ClusterConfig:
    """The cluster that the file at `path` describes; its paths start from the file's folder."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            "there is no such file", place=str(path), remedy="Leave it out to run all sites here."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=str(path)) from None
    cluster = parse_cluster(text, str(path))
    return cluster.model_copy(update={"security": cluster.security.below(path.parent)})


def parse_cluster(text: str, name: str = "cluster.toml") -> ClusterConfig:
    """The cluster that `text` describes, or a ConfigError for the first thing wrong with it.

    `name` is what errors call the text. Every rule of `anabranch.config.rules` holds of the result.
    """
    try:
        cluster = ClusterFile.model_validate(_parse_toml(text, name)).to_cluster()
    except ValidationError as error:
        raise config_error(error, name) from None
    for breach in breaches(cluster):
        line = _line_of(breach.message, text) if breach.place == "site" else ""
        place = f"{name}: {line or breach.place}" if breach.place else name
        raise ConfigError(breach.message, place=place, remedy=breach.remedy)
    return cluster


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, column = _place(str(error), text)
        raise ConfigError(
            f"not TOML: {_TOML_PLACE.sub('', str(error))}",
            place=f"{name}: line {line}, column {column}",
        ) from None


def _line_of(message: str, text: str) -> str:
    """The line of the site's header, if `message` begins with a site's name in quotes."""
    called = re.match("'(.*)' is not", message)
    for number, line in enumerate(text.split("\n"), start=1):
        if called and line.lstrip().startswith("[site.") and called[1] in line:
            return f"line {number}"
    return ""


def _place(complaint: str, text: str) -> tuple[int, int]:
    match = _TOML_PLACE.search(complaint)
    if match and match[1]:
        return int(match[1]), int(match[2])
    *before, last = text.split("\n")
    return len(before) + 1, len(last) + 1
