"""A site's part in protection: the tasks it stands by for, and what others ask of its streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Protocol

from anabranch.config.cluster import Cluster
from anabranch.errors import AnabranchError, Gap, SiteError
from anabranch.link.inlet import LiveInlet
from anabranch.link.peer import Peers
from anabranch.plan.tasks import TaskSpec
from anabranch.site.guard import Guard, Post
from anabranch.site.links import Links
from anabranch.site.task import Task
from anabranch.site.tuning import Wishes
from anabranch.site.upstream import Upstream
from anabranch.stream.restart import RestartPoint, point_of
from anabranch.stream.routes import Route


class Host(Protocol):
    """What protection needs of its site."""

    tasks: dict[str, Task]

    def install_standby(self, spec: TaskSpec, *, resume: bool = False) -> Task: ...
    def new_inlets(self, task: Task) -> Sequence[LiveInlet]: ...
    def consider(self, task: Task) -> None: ...
    def discard(self, task: Task) -> None: ...
    def ruling(self, task: Task) -> None: ...
    def tell(self) -> None: ...


class Protection:
    """Guards of the site `name` by the task they stand by for."""

    def __init__(self, name: str, cluster: Cluster, host: Host, links: Links, peers: Peers) -> None:
        self._name = name
        self._cluster = cluster
        self._host = host
        self._links = links
        self._peers = peers
        self.guards: dict[str, Guard] = {}
        links.on_superseded = self._superseded
        links.on_behind = self._behind

    def actions(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        return {
            "beat": self._beat,
            "stand_by": self._stand_by,
            "take_over": self._take_over,
            "claim": self._claim,
            "standing": self._standing,
            "routes": lambda body: self.learn(body["routes"]),
            "batch": self._batch,
            "measured": lambda body: self._links.outlet(body["stream"]).measured(body["consumer"]),
        }

    def close(self) -> None:
        for guard in self.guards.values():
            guard.close()

    def report(self, task: Task) -> dict[str, Any]:
        guard = self.guards.get(task.spec.name)
        return guard.report() if guard else {}

    def forget(self, task: str) -> list[str]:
        """It is dropped; the sinks that were to begin with it are to be, too."""
        guard = self.guards.pop(task, None)
        if guard is None:
            return []
        guard.close()
        output = guard.task.spec.output
        waiting = [one.spec for one in self._host.tasks.values() if one.role == "standby"]
        return [one.name for one in waiting if one.sink and one.inputs[0].stream == output]

    # -- standing by -----------------------------------------------------------------------------

    def _stand_by(self, body: dict[str, Any]) -> None:
        """Run `task` from `point` on as the standby of `primary`, and rule in `epoch` after it.
        `consumers` read its output: name → the position behind which they need it."""
        spec = TaskSpec.model_validate(body["task"])
        point = point_of(body["point"])
        wishes = Wishes(**body["wishes"])
        post = Post(body["primary"], body["epoch"], body["batch"], body["codec"], wishes)
        task = self._host.install_standby(spec)
        if task.outlet:
            task.outlet.start_at(point.output)
            for consumer, known in body["consumers"].items():
                known_point = point_of(known["point"]) if known["point"] else None
                task.outlet.attach(
                    consumer, after=known["after"], point=known_point, epoch=known["epoch"]
                )
        task.start(point, post.epoch)
        guard = Guard(
            self._name, task, point, post, self._cluster, self._links, self._peers,
            partial(self._host.new_inlets, task),
        )  # fmt: skip
        sink = body["sink"]
        along = (
            self._host.install_standby(TaskSpec.model_validate(sink), resume=True) if sink else None
        )
        guard.consider = partial(self._host.consider, task)
        guard.on_primary = partial(self._rule, guard, along)
        guard.on_recovered = self._host.tell
        guard.on_retired = partial(self._host.discard, task)
        self.guards[spec.name] = guard
        guard.start()

    def _rule(self, guard: Guard, sink: Task | None) -> None:
        """The task has taken over. Its sink goes on behind what it has written, which it knows; the
        one that wrote before can write no more, or only what is there already."""
        task = guard.task
        if sink and task.outlet:
            released, told = task.outlet.standing(sink.spec.name)
            birth = told.birth if told else 0
            sink.role = "primary"
            try:
                sink.start(RestartPoint((released,), released, birth=birth), guard.post.epoch)
                self._links.follow_inputs(sink)
            except AnabranchError as error:
                sink.fail(error)
        self._host.ruling(task)

    def _take_over(self, body: dict[str, Any]) -> None:
        self._guard(body["task"]).take_over()

    def _guard(self, task: str) -> Guard:
        if task not in self.guards:
            raise SiteError(f"site {self._name} does not stand by for {task}")
        return self.guards[task]

    # -- the other side --------------------------------------------------------------------------

    def _beat(self, body: dict[str, Any]) -> dict[str, Any]:
        task = self._host.tasks.get(body["task"])
        if task is None or task.role != "primary" or task.state == "waiting":
            return {"runs": False, "fixed_ms": 0.0, "per_tuple_us": 0.0}
        report = task.measures.report(time.monotonic())
        return {"runs": True, "fixed_ms": report["fixed_ms"],
                "per_tuple_us": report["per_tuple_us"]}  # fmt: skip

    def _claim(self, body: dict[str, Any]) -> dict[str, Any]:
        outlet = self._links.outlet(body["stream"])
        released, restart, sent = outlet.claim(body["consumer"], body["epoch"])
        point = asdict(restart) if restart else None
        return {"released": released, "restart": point, "sent": sent}

    def _standing(self, body: dict[str, Any]) -> dict[str, Any]:
        released, restart = self._links.outlet(body["stream"]).standing(body["consumer"])
        return {"released": released, "restart": asdict(restart) if restart else None}

    def _batch(self, body: dict[str, Any]) -> None:
        outlet = self._links.outlet(body["stream"])
        outlet.batch_by(body["consumer"], body["epoch"], body["batch"])

    def learn(self, routes: Mapping[str, Sequence[Any]]) -> None:
        """Stream → (site, epoch, standby, its claim)."""
        before = {stream: self._links.routes[stream] for stream in routes}
        news = {stream: Route(*route) for stream, route in routes.items()}
        self._links.learn(news)
        for stream, known in before.items():
            route = self._links.routes[stream]
            if route == known or route is None:
                continue
            for guard in list(self.guards.values()):
                guard.reroute(stream)
                mine = guard.task.spec.output == stream and guard.state == "standby"
                if mine and route.dismisses(self._name, guard.post.epoch):
                    self._host.discard(guard.task)

    def _behind(self, task: Task, error: Gap) -> None:
        """A producer has let go of what a task of ours would take next, on the word of the one that
        ruled before it: the point that came with that word is where to go on. Not in the thread of
        the link that found out, which is to end."""

        def go_on() -> None:
            self._links.unfollow(task)
            try:
                upstream = Upstream(self._name, task.spec, self._links, self._peers)
                stands = [upstream.standing(index) for index in range(len(task.inlets))]
                point = task.restart_point()
                for one in stands:
                    point = point.join(one.restart) if one.restart else point
                if any(p < one.released for p, one in zip(point.inputs, stands, strict=True)):
                    raise error
                inlets = self._host.new_inlets(task)
                for inlet, position in zip(inlets, point.inputs, strict=True):
                    inlet.start_at(position)
                task.restart(point, inlets)
                self._links.follow_inputs(task)
            except AnabranchError as problem:
                task.fail(problem)

        threading.Thread(target=go_on, name=f"{task.spec.name}-behind", daemon=True).start()

    def _superseded(self, task: Task) -> None:
        """Another site runs it now: it stops, and lets go of nothing on the other's behalf. In a
        thread of its own, since any of the task's threads may have found out."""
        name = f"{task.spec.name}-superseded"
        threading.Thread(target=self._host.discard, args=(task,), name=name, daemon=True).start()
