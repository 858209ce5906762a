"""A site without Spark: what its threads do to each other."""

from __future__ import annotations

import threading
import time

from anabranch.config.cluster import Cluster
from anabranch.link.gate import Credentials
from anabranch.site.site import Site
from tests.site.fakes import FakeBody, a_task, an_outlet, tuples


def test_a_task_can_be_dropped_while_an_instance_runs() -> None:
    """The instance tells upstream what it no longer needs; that must not wait for the drop, which
    waits for the instance."""
    site = Site("room1", Cluster(), Credentials("secret"), None)  # type: ignore[arg-type]
    source = an_outlet("S")
    site.deployment.outlets["S"] = source
    stepping = threading.Event()

    def slowly() -> None:
        stepping.set()
        time.sleep(0.1)

    task, _ = a_task(FakeBody(during=slowly), outlet=an_outlet("hot"))
    site.deployment.install(task)
    source.attach("hot")
    site.deployment.start({"tasks": {"hot": {"inputs": [0]}}})
    source.append([tuples(1, 5)], 1)
    assert stepping.wait(5)
    drop = threading.Thread(target=site.deployment.drop, args=({"tasks": ["hot"]},), daemon=True)
    drop.start()
    drop.join(2)
    assert not drop.is_alive()
    site.close()
