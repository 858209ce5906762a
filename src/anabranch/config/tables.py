"""The tables of `cluster.toml`, key by key, and how they become a Cluster.

Types are strict: `slots = "2"` is a mistake worth telling, not a number.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from anabranch.config.address import Address
from anabranch.config.model import (
    Cluster,
    Durability,
    LinkConfig,
    Placement,
    Security,
    SiteConfig,
    SiteSettings,
)
from anabranch.config.problems import did_you_mean, problem
from anabranch.config.quantities import Bytes, BytesPerSecond, Microseconds
from anabranch.placement import METHODS

_DEFAULT = Cluster()


class Table(BaseModel):
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


class SiteTable(Table, SiteSettings):
    pass


class SecurityTable(Table, Security):
    pass


class QueueTable(Table):
    max_bytes: Bytes = Field(default=_DEFAULT.queue_bytes, gt=0)


class ClusterTable(Table):
    ack_interval: Microseconds = Field(default=_DEFAULT.ack_interval_us, gt=0)
    heartbeat_interval: Microseconds = Field(default=_DEFAULT.heartbeat_interval_us, gt=0)
    missed_heartbeats: int = Field(default=_DEFAULT.missed_heartbeats, ge=1)
    instance_limit: Microseconds = Field(default=_DEFAULT.instance_limit_us, gt=0)
    listen: Address = _DEFAULT.listen
    durability: Durability = _DEFAULT.durability
    spares: int = Field(default=_DEFAULT.spares, ge=0)
    models: str = _DEFAULT.models
    queue: QueueTable = QueueTable()


class PlacementTable(Table):
    method: str = _DEFAULT.placement.method
    sample: Microseconds = Field(default=_DEFAULT.placement.sample_us, gt=0)
    replan: Microseconds = _DEFAULT.placement.replan_us

    def placement(self) -> Placement:
        return Placement(method=self.method, sample_us=self.sample, replan_us=self.replan)

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: str) -> str:
        if method not in METHODS:
            remedy = did_you_mean(method, METHODS, title="There are")
            raise problem(f"unknown placement method {method!r}", remedy)
        return method


class LinkTable(Table):
    sender: str = Field(alias="from")
    receiver: str = Field(alias="to")
    delay: Microseconds = 0
    jitter: Microseconds = 0
    bandwidth: BytesPerSecond | None = Field(default=None, gt=0)
    both: bool = False

    def links(self) -> tuple[LinkConfig, ...]:
        there = LinkConfig(
            sender=self.sender,
            receiver=self.receiver,
            delay_us=self.delay,
            jitter_us=self.jitter,
            bandwidth=self.bandwidth,
        )
        return (there, there.reversed()) if self.both else (there,)


class ClusterFile(Table):
    cluster: ClusterTable = ClusterTable()
    security: SecurityTable = SecurityTable()
    placement: PlacementTable = PlacementTable()
    defaults: SiteTable = SiteTable()
    site: dict[str, SiteTable] = {}
    link: list[LinkTable] = []

    def to_cluster(self) -> Cluster:
        return Cluster(
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
