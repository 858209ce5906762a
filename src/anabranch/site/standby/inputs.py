"""The inputs of a standby: who produces them now, what it is shipped, what it does with it, and
what it puts off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from anabranch.errors import AnabranchError, SiteError, Superseded, TaskError
from anabranch.link.inlet import LiveInlet
from anabranch.link.message import A, Message
from anabranch.link.messages import (
    AskConsumer,
    AskTraffic,
    ClaimInput,
    ConsumerState,
    Ship,
    ShipBy,
    StandBy,
)
from anabranch.link.meter import Flow
from anabranch.link.network import Network
from anabranch.link.wire import Unpack
from anabranch.plan.tasks import TaskSpec
from anabranch.runtime.base import Mutex, Runtime
from anabranch.site.links.links import Links
from anabranch.site.tasks.task import Task
from anabranch.standby.secondary import Action, Claim, Feed, Secondary
from anabranch.stream.batch import Batch
from anabranch.stream.restart import RestartPoint

ASK_S = 2.0


class Upstream:
    """Asks on behalf of a task, as its consumer; inputs go by their index. Every call raises
    SiteError if the producer is away.
    """

    def __init__(self, spec: TaskSpec, links: Links, network: Network) -> None:
        self._spec = spec
        self._links = links
        self._network = network

    async def ship_by(self, index: int, epoch: int, batch: int) -> None:
        await self._ask(index, ShipBy(*self._named(index), epoch, batch))

    async def measured(self, index: int) -> Flow | None:
        return await self._ask(index, AskTraffic(*self._named(index)))

    async def claim(self, index: int, epoch: int) -> ConsumerState:
        """Claims the input. Raises Superseded if a later epoch has claimed it."""
        return await self._ask(index, ClaimInput(*self._named(index), epoch))

    async def consumer_state(self, index: int) -> ConsumerState:
        return await self._ask(index, AskConsumer(*self._named(index)))

    async def states(self) -> list[ConsumerState]:
        return [await self.consumer_state(index) for index in range(len(self._spec.inputs))]

    def _named(self, index: int) -> tuple[str, str]:
        return self._spec.inputs[index].stream, self._spec.consumer(index)

    async def _ask(self, index: int, message: Message[A]) -> A:
        site = self._links.route(self._spec.inputs[index]).site
        return await self._network.call(site, message, ASK_S)


class _Collector:
    """One input of a standby as its subscription sees it."""

    def __init__(self, inputs: StandbyInputs, index: int, stream: str, unpack: Unpack) -> None:
        self._inputs = inputs
        self._index = index
        self._unpack = unpack
        self.stream = stream

    @property
    def received(self) -> int:
        return self._inputs.received[self._index]

    async def space(self) -> None:
        await self._inputs.space(self._index)

    async def offer(self, batch: Batch[Any]) -> None:
        await self._inputs.offer(self._index, self._unpack(batch))

    def close(self) -> None:
        """Does nothing: the standby goes on."""


class StandbyInputs:
    """The inputs of one task that was begun at the point of its `post`. `consider` makes the
    executor look at the task; `on_failure` is called with links that cannot go on; `unpack(index)`
    undoes the codec.
    """

    def __init__(
        self,
        runtime: Runtime,
        task: Task,
        post: StandBy,
        links: Links,
        upstream: Upstream,
        new_inlets: Callable[[], Sequence[LiveInlet[Any]]],
        unpack: Callable[[int], Unpack],
        consider: Callable[[], None],
        on_failure: Callable[[AnabranchError], None],
    ) -> None:
        self._runtime = runtime
        self._task = task
        self._post = post
        self._upstream = upstream
        self._new_inlets = new_inlets
        self._consider = consider
        self._on_failure = on_failure
        self.batches = [post.batch for _ in task.spec.inputs]
        self.jumps = 0
        self._secondary: Secondary[Any] = Secondary(post.point)
        self._one = Mutex(runtime)
        self._heard: set[int] = set()
        self._subscriptions = [
            links.subscribe(
                source,
                _Collector(self, index, source.stream, unpack(index)),
                partial(self._ship, index),
                on_failure,
            )
            for index, source in enumerate(task.spec.inputs)
            if not post.point.finished
        ]

    def close(self) -> None:
        """Closes the inputs: nothing more is to come in."""
        for subscription in self._subscriptions:
            subscription.close()

    @property
    def heard_all(self) -> bool:
        return len(self._heard) == len(self._subscriptions)

    @property
    def received(self) -> tuple[int, ...]:
        return self._secondary.received

    @property
    def kept(self) -> int:
        return self._secondary.kept

    # -- shipments -------------------------------------------------------------------------------

    def _ship(self, index: int, after: int) -> Ship:
        spec, post = self._task.spec, self._post
        return Ship(
            spec.inputs[index].stream,
            spec.consumer(index),
            after,
            post.epoch,
            self.batches[index],
            post.codec,
        )

    async def ship_by(self, index: int, batch: int) -> None:
        """Has an input shipped in batches of another size."""
        self.batches[index] = batch
        await self._upstream.ship_by(index, self._post.epoch, batch)

    def reroute(self, stream: str) -> None:
        for source, link in zip(self._task.spec.inputs, self._subscriptions, strict=False):
            if source.stream == stream:
                link.reroute()

    async def space(self, index: int) -> None:
        await self._task.inlets[index].space()

    async def offer(self, index: int, batch: Batch[Any]) -> None:
        """Takes a shipment or heartbeat."""
        async with self._one:
            await self._perform(self._secondary.offer(index, batch, self._task.idle_at()))
            self._heard.add(index)

    async def _perform(self, actions: list[Action[Any]]) -> None:
        """Feeds the task, or makes it begin again."""
        for action in actions:
            if isinstance(action, Feed):
                await self._task.inlets[action.index].offer(action.batch)
                self._consider()
                continue
            self.jumps += 1
            inlets = self._new_inlets()
            for inlet, position, kept in zip(inlets, action.point.inputs, action.kept, strict=True):
                inlet.start_at(position)
                inlet.preload(kept)
            await self._restart(action.point, inlets)
            self._consider()
        self._task.learn(self._secondary.point)

    async def _restart(self, point: RestartPoint, inlets: Sequence[LiveInlet[Any]]) -> None:
        """Has the task begin again. Raises Superseded if the state that the point names is not
        there any more, because the primary has kept later ones: another standby begins with these.
        """
        try:
            await self._task.restart(point, inlets)
        except TaskError as error:
            raise Superseded(error.message, place=error.place) from error

    async def look_up(self) -> None:
        """Called now and then. While an input is full, no shipment tells what was released, so it
        asks.
        """
        if any(inlet.full for inlet in self._task.inlets):
            try:
                stands = await self._upstream.states()
            except SiteError:
                return  # it is told when it is back
            try:
                await self._learn(one.restart for one in stands)
            except Superseded as error:
                self._on_failure(error)
                return
        self._consider()  # what has waited long enough

    async def _learn(self, points: Iterable[RestartPoint | None]) -> None:
        async with self._one:
            for point in filter(None, points):
                await self._perform(self._secondary.learn(point, self._task.idle_at()))

    # -- take-over -------------------------------------------------------------------------------

    async def take_over(self, states: Sequence[ConsumerState]) -> None:
        """Takes over: the producers have agreed, and the inputs are closed. Raises Gap as
        `Secondary.take_over`.
        """
        claims = [Claim(one.released, one.restart) for one in states]
        for subscription in self._subscriptions:
            await subscription.join()
        async with self._one:
            await self._perform(self._secondary.take_over(claims, self._task.idle_at()))
