"""A site without Spark: what its threads do to each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import psutil

from anabranch.config.cluster import ClusterConfig
from anabranch.link.gate import Credentials, within
from anabranch.link.messages import Announce, Begin, DropTasks, Start
from anabranch.plan.tasks import TaskInput, TaskSpec
from anabranch.site.site import Site
from anabranch.site.tasks.body import Produced, Taken
from anabranch.site.tasks.task import Task
from anabranch.stream.restart import FOREVER, RestartPoint
from anabranch.stream.routes import Route
from tests.link.support import LOOP, an_inlet, eventually
from tests.site.fakes import SCHEMA, SPEC_COLUMNS, FakeBody, NoJobs, a_task, an_outlet, tuples


def test_a_task_can_be_dropped_while_an_instance_runs() -> None:
    """The instance tells upstream what it no longer needs; that must not wait for the drop, which
    waits for the instance."""
    site = Site("room1", ClusterConfig(), Credentials("secret"), None)  # type: ignore[arg-type]
    source = an_outlet("S")
    deployment = site.service.deployment
    deployment.outlets["S"] = source
    stepping = threading.Event()

    def slowly() -> None:
        stepping.set()
        time.sleep(0.1)

    task, _ = a_task(FakeBody(during=slowly), outlet=an_outlet("hot"), owner=deployment)
    deployment.install(task)
    source.attach("hot")
    LOOP.run(deployment.start(Start({"hot": Begin(RestartPoint((0,), 0))})))
    source.append([tuples(1, 5)], 1)
    assert stepping.wait(5)
    LOOP.run(within(LOOP, deployment.drop(DropTasks(tasks=("hot",))), 2, "the drop"))
    site.close()


class Merged(FakeBody):
    """Takes any number of inputs and gives nothing."""

    def step(self, inputs: Sequence[Taken]) -> Produced:
        lasts = tuple(one.last for one in inputs)
        return Produced(SCHEMA.empty_table(), min(one.watermark for one in inputs), lasts)


def test_every_input_is_acknowledged_though_names_are_the_same() -> None:
    """A task reads each of its streams under its own name, and a stream it reads twice also under
    another: all of them are let go of."""
    site = Site("room1", ClusterConfig(), Credentials("secret"), None)  # type: ignore[arg-type]
    deployment = site.service.deployment
    streams = {name: an_outlet(name) for name in "ST"}
    deployment.outlets.update(streams)
    inputs = tuple(
        TaskInput(stream=name, site="room1", alias=f"a{index}", columns=SPEC_COLUMNS)
        for index, name in enumerate("STS")
    )
    spec = TaskSpec(
        name="hot", query="hot", site="room1", inputs=inputs, columns=SPEC_COLUMNS, output="hot"
    )
    inlets = [an_inlet(limit=1 << 30) for _ in inputs]
    task = Task(LOOP, deployment, spec, Merged(), inlets, an_outlet("hot"), NoJobs())
    deployment.install(task)
    for name, consumer in (("S", "hot"), ("T", "hot"), ("S", "hot#2")):
        streams[name].attach(consumer)
    LOOP.run(deployment.start(Start({"hot": Begin(RestartPoint((0, 0, 0), 0))})))
    for outlet in streams.values():
        outlet.append([tuples(1, 5)], 1)
    eventually(lambda: all(outlet.released == 5 for outlet in streams.values()))
    site.close()


def test_a_new_producer_hears_that_a_task_has_ended() -> None:
    """The task ended early and follows nothing any more; a producer that takes its input over, and
    knows it from before it ended, would keep everything for it, and soon wait for it."""
    secret = Credentials("secret")
    reads, takes_over = (Site(name, ClusterConfig(), secret, None) for name in ("room1", "room2"))  # type: ignore[arg-type]
    reads.peers.update({"room2": takes_over.address})
    deployment = reads.service.deployment
    task, _ = a_task(FakeBody(), owner=deployment, producer="gone")
    deployment.install(task)
    LOOP.run(deployment.start(Start({"hot": Begin(RestartPoint((FOREVER,), 3))})))
    stream = takes_over.service.deployment.outlets["S"] = an_outlet("S")
    stream.produce_in(1)
    stream.attach("hot")
    stream.append([tuples(1, 5)], 1)
    assert stream.wanted
    LOOP.run(reads.service.protection.announced(Announce({"S": Route("room2", 1)})))
    eventually(lambda: not stream.wanted)
    for site in (reads, takes_over):
        site.close()


def test_threads_grow_with_sites_not_with_queries() -> None:
    """Twenty sites in one process, a hundred queries that each read another site's stream."""
    before = psutil.Process().num_threads()
    secret = Credentials("secret")
    sites = [Site(f"s{n}", ClusterConfig(), secret, None) for n in range(20)]  # type: ignore[arg-type]
    addresses = {site.name: site.address for site in sites}
    for site in sites:
        site.peers.update(addresses)
        site.service.deployment.outlets[site.name] = an_outlet(site.name)
    done = []
    for number in range(100):
        name, site, producer = f"q{number}", sites[number % 20], sites[(number + 7) % 20]
        deployment, body = site.service.deployment, FakeBody(during=lambda: done.append(1))
        task, _ = a_task(
            body,
            outlet=an_outlet(name),
            owner=deployment,
            name=name,
            stream=producer.name,
            producer=producer.name,
        )
        deployment.install(task)
        producer.service.outlets[producer.name].attach(name)
        LOOP.run(deployment.start(Start({name: Begin(RestartPoint((0,), 0))})))
    for site in sites:
        site.service.outlets[site.name].append([tuples(1, 5)], 1)
    deadline = time.monotonic() + 60
    while len(done) < 100 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(done) >= 100
    assert psutil.Process().num_threads() - before <= 200
    for site in sites:
        site.close()
