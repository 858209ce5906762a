"""The producers of a task's inputs, wherever they are now: at another site, or here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.link.peer import Peers
from anabranch.link.subscription import Batches
from anabranch.plan.tasks import TaskSpec
from anabranch.site.links import Links
from anabranch.stream.restart import RestartPoint, point_of


@dataclass(frozen=True)
class Standing:
    """What a producer has let go of on a task's word, that task's restart point, and how far it was
    sent."""

    released: int
    restart: RestartPoint | None
    sent: int = 0


class Upstream:
    """Asks for a task of the site `name`, as its consumer; inputs go by their index. Every call
    raises SiteError if the producer is away."""

    def __init__(self, name: str, spec: TaskSpec, links: Links, peers: Peers) -> None:
        self._name = name
        self._spec = spec
        self._links = links
        self._peers = peers

    def ship(
        self, index: int, after: int, epoch: int, batch: int, codec: str | None, gone: Gone
    ) -> Batches:
        stream, consumer, site = self._input(index)
        if site == self._name:
            return self._links.outlet(stream).ship_here(consumer, after, epoch, batch, gone)
        return self._peers[site].ship(stream, consumer, after, epoch, batch, codec)

    def batch_by(self, index: int, epoch: int, batch: int) -> None:
        stream, consumer, site = self._input(index)
        if site == self._name:
            self._links.outlet(stream).batch_by(consumer, epoch, batch)
        else:
            self._call(index, "batch", epoch=epoch, batch=batch)

    def measured(self, index: int) -> dict[str, Any]:
        stream, consumer, site = self._input(index)
        if site == self._name:
            return self._links.outlet(stream).measured(consumer)
        found: dict[str, Any] = self._call(index, "measured")
        return found

    def claim(self, index: int, epoch: int) -> Standing:
        """Raises Superseded if a later epoch has claimed it."""
        stream, consumer, site = self._input(index)
        if site == self._name:
            return Standing(*self._links.outlet(stream).claim(consumer, epoch))
        return _standing(self._call(index, "claim", epoch=epoch))

    def standing(self, index: int) -> Standing:
        stream, consumer, site = self._input(index)
        if site == self._name:
            return Standing(*self._links.outlet(stream).standing(consumer))
        return _standing(self._call(index, "standing"))

    def _input(self, index: int) -> tuple[str, str, str]:
        source = self._spec.inputs[index]
        return source.stream, self._spec.consumer(index), self._links.route(source).site

    def _call(self, index: int, action: str, **body: Any) -> Any:
        stream, consumer, site = self._input(index)
        peer = self._peers[site]
        return peer.call(action, timeout_s=2.0, stream=stream, consumer=consumer, **body)


Gone = Callable[[], bool]


def _standing(answer: dict[str, Any]) -> Standing:
    restart = answer["restart"]
    point = point_of(restart) if restart else None
    return Standing(answer["released"], point, answer.get("sent", 0))
