"""The producers of a task's inputs, wherever they are now."""

from __future__ import annotations

from anabranch.link.message import A, Message
from anabranch.link.messages import AskConsumer, Claim, ConsumerState, Measured, ShipBy
from anabranch.link.meter import Flow
from anabranch.link.network import Network
from anabranch.plan.tasks import TaskSpec
from anabranch.site.links.links import Links

ASK_S = 2.0


class Upstream:
    """Asks for a task, as its consumer; inputs go by their index. Every call raises SiteError if
    the producer is away."""

    def __init__(self, spec: TaskSpec, links: Links, network: Network) -> None:
        self._spec = spec
        self._links = links
        self._network = network

    async def ship_by(self, index: int, epoch: int, batch: int) -> None:
        await self._ask(index, ShipBy(*self._named(index), epoch, batch))

    async def measured(self, index: int) -> Flow | None:
        return await self._ask(index, Measured(*self._named(index)))

    async def claim(self, index: int, epoch: int) -> ConsumerState:
        """Raises Superseded if a later epoch has claimed it."""
        return await self._ask(index, Claim(*self._named(index), epoch))

    async def consumer_state(self, index: int) -> ConsumerState:
        return await self._ask(index, AskConsumer(*self._named(index)))

    async def states(self) -> list[ConsumerState]:
        return [await self.consumer_state(index) for index in range(len(self._spec.inputs))]

    def _named(self, index: int) -> tuple[str, str]:
        return self._spec.inputs[index].stream, self._spec.consumer(index)

    async def _ask(self, index: int, message: Message[A]) -> A:
        site = self._links.route(self._spec.inputs[index]).site
        return await self._network.call(site, message, ASK_S)
