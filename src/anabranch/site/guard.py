"""Standing by for a task: runs it on what is shipped, watches its primary, and takes over."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from anabranch.config.cluster import Cluster
from anabranch.errors import AnabranchError, Gap, SiteError, Superseded
from anabranch.link.inlet import LiveInlet
from anabranch.link.peer import Peers, refused
from anabranch.site.links import Links
from anabranch.site.measures import Cost
from anabranch.site.standby_inputs import StandbyInputs
from anabranch.site.task import Task
from anabranch.site.tuning import Costs, Tuning, Wishes
from anabranch.site.upstream import Standing, Upstream
from anabranch.site.warmth import Warmth
from anabranch.standby.detector import Beat, Detector
from anabranch.standby.patience import PATIENCE_S, Patience
from anabranch.standby.secondary import Claim
from anabranch.stream.restart import RestartPoint
from anabranch.stream.routes import Route

RETRY_S = 0.05
CATCH_UP_S = 120.0
ENOUGH = 20
"""Instances of its own from which a standby knows what it costs here; else it asks its primary."""
RTTS = 15
"""Calls to the primary whose median counts: one may be slow by chance."""


@dataclass(frozen=True)
class Post:
    """What a standby is told of its post: whom it stands by for, in which epoch it would rule, and
    how it is shipped to."""

    primary: str
    epoch: int
    batch: int
    codec: str | None
    wishes: Wishes


class Guard:
    """Of one task at the site `name`, begun at `point`.

    `consider` has the executor look at the task; `on_primary` is told when the task has taken over,
    `on_recovered` when it has caught up, `on_retired` when another has been given the post.
    """

    def __init__(
        self,
        name: str,
        task: Task,
        point: RestartPoint,
        post: Post,
        cluster: Cluster,
        links: Links,
        peers: Peers,
        new_inlets: Callable[[], Sequence[LiveInlet]],
    ) -> None:
        self.post = post
        self.task = task
        self.consider: Callable[[], None] = lambda: None
        self.on_primary: Callable[[], None] = lambda: None
        self.on_recovered: Callable[[], None] = lambda: None
        self.on_retired: Callable[[], None] = lambda: None
        self.state = "standby"
        self.jumps = 0
        self.timeline: dict[str, float] = {}
        """When the primary was found dead and how far the take-over came, in seconds since 1970."""
        self.beaten = 0.0
        """When the primary last answered, on the same clock."""
        self._name = name
        self._links = links
        self._peers = peers
        self._upstream = Upstream(name, task.spec, links, peers)
        self._heartbeat_s = cluster.heartbeat_interval_us / 1e6
        self._missed = cluster.missed_heartbeats
        self._rtts: deque[float] = deque(maxlen=RTTS)
        self._costs = Costs(0.0, 0.0, 0.0)
        # Whoever names a recovery time has all done that may be needed for it.
        patience = Patience(0.0 if post.wishes.recovery_s else PATIENCE_S)
        self._inputs = StandbyInputs(
            task, point, post.epoch, post.batch, post.codec, links, self._upstream, new_inlets,
            patience, lambda: self.consider(), self._failed,
        )  # fmt: skip
        self._tuning = Tuning(
            task.spec,
            cluster,
            name,
            post.wishes,
            self._upstream.measured,
            lambda: self._costs,
            self._inputs.batch_by,
        )
        self._warmth = Warmth(task)
        self._over = threading.Event()
        self._asked = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name=f"{name}-guard-{task.spec.name}", daemon=True
        )

    def start(self) -> None:
        self._inputs.start()
        self._thread.start()
        self._tuning.start()
        self._warmth.start()

    def close(self) -> None:
        """Stand by no more."""
        self._over.set()
        self._tuning.close()
        self._warmth.close()
        self._asked.set()
        self._inputs.close()

    @property
    def protects(self) -> bool:
        """Heard from every input: it could take over now."""
        return self.state == "standby" and self._inputs.heard_all

    def _failed(self, error: AnabranchError) -> None:
        if self.state != "standby":
            return  # our own claim has ended the shipments
        if isinstance(error, Superseded):
            self._retire()
        else:
            self.task.fail(error)

    def reroute(self, stream: str) -> None:
        """A stream is produced elsewhere now."""
        if self.state == "standby":
            self._inputs.reroute(stream)

    # -- take-over -------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Now, though the primary may be well."""
        self._asked.set()

    def _watch(self) -> None:
        detector = Detector(self._missed)
        while not self._asked.wait(self._heartbeat_s):
            if detector.heard(self._beat()):
                break
            self._inputs.look_up()
        if not self._over.is_set():
            self.timeline["noticed"] = time.time()
            self._claim()

    def _beat(self) -> Beat:
        begun = time.monotonic()
        try:
            answer = self._peers[self.post.primary].call(
                "beat", timeout_s=self._heartbeat_s, task=self.task.spec.name
            )
        except SiteError as error:
            return Beat.REFUSED if refused(error) else Beat.SILENT
        self.beaten = time.time()
        self._rtts.append(time.monotonic() - begun)
        rtt_s = median(self._rtts)
        measures = self.task.measures
        known = measures.cost() if measures.samples >= ENOUGH else _cost(answer)
        self._costs = Costs(known.fixed, known.per_tuple, rtt_s)
        return Beat.ALIVE if answer["runs"] else Beat.ABSENT

    def _claim(self) -> None:
        """Tell everyone, learn from upstream where to go on, and go on. What is there already can
        be sent at once: it is what the primary would send."""
        self.state = "claiming"
        self._tuning.close()
        self._warmth.close()
        self._inputs.close()
        self.task.take_over()
        self._announce()
        try:
            answers = self._all_claimed()
            self._inputs.take_over([Claim(one.released, one.restart) for one in answers])
        except (Superseded, Gap):  # replaced; or someone who knows more must be posted instead
            self._retire()
            return
        if self._over.is_set():
            return
        self.timeline["claimed"] = time.time()
        self.state = "primary"
        self._links.follow_inputs(self.task)
        self.consider()
        self.on_primary()
        self._catch_up([one.sent for one in answers])

    def _catch_up(self, sent: Sequence[int]) -> None:
        """Note when all that the primary had been sent is processed here too."""
        deadline = time.monotonic() + CATCH_UP_S
        while any(done < last for done, last in zip(self.task.processed, sent, strict=True)):
            if self._over.wait(0.002) or time.monotonic() > deadline:
                return
        self.timeline["recovered"] = time.time()
        self.on_recovered()

    def _all_claimed(self) -> list[Standing]:
        """The answers of all inputs' producers, none of which has been replaced meanwhile: the
        word of one whose reign is over says nothing about what its successor lets go of."""
        inputs = self.task.spec.inputs
        while True:
            before = [self._links.route(source) for source in inputs]
            answers = [self._claimed(index) for index in range(len(inputs))]
            if before == [self._links.route(source) for source in inputs]:
                return answers

    def _claimed(self, index: int) -> Standing:
        """The answer of an input's producer, as soon as there is one."""
        while not self._over.is_set():
            try:
                return self._upstream.claim(index, self.post.epoch)
            except SiteError:
                self._over.wait(RETRY_S)
        raise Superseded(f"{self.task.spec.name} stands by no more")

    def _announce(self) -> None:
        """To all sites, at once; those that cannot be reached now hear of it from others."""
        output = self.task.spec.output
        if output is None:
            return
        news = {output: Route(self._name, self.post.epoch, None, self.post.epoch)}
        self._links.learn(news)
        for site in self._peers.names():
            if site != self._name:
                threading.Thread(target=self._tell, args=(site, news), daemon=True).start()

    def _tell(self, site: str, news: dict[str, Route]) -> None:
        routes = {stream: [r.site, r.epoch, r.standby, r.claim] for stream, r in news.items()}
        for _ in range(20):
            try:
                self._peers[site].call("routes", timeout_s=1.0, routes=routes)
                return
            except AnabranchError:
                if self._over.wait(0.5):
                    return

    def _retire(self) -> None:
        if self.state != "retired":
            self.state = "retired"
            self.close()
            self.on_retired()

    def report(self) -> dict[str, Any]:
        """For the status of the task."""
        return {
            "guard": self.state,
            "protects": self.protects,
            "batch": self._inputs.batches[0],
            "tuning": self._tuning.report(),
            "codec": self.post.codec,
            "primary": self.post.primary,
            "kept_inputs": self._inputs.kept,
            "jumps": self._inputs.jumps,
            "received": list(self._inputs.received),
            "beaten": self.beaten,
            "timeline": dict(self.timeline),
        }


def _cost(answer: dict[str, float]) -> Cost:
    return Cost(answer["fixed_ms"] / 1e3, answer["per_tuple_us"] / 1e6)
