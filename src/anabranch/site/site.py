"""One site: a gate, a Spark session, the tasks and sources deployed here, and links to others."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from anabranch.config.cluster import Cluster, SiteConfig
from anabranch.errors import SiteError
from anabranch.link.gate import Credentials, Gate
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peers
from anabranch.plan.operators import Column
from anabranch.site.analyse import analyse, check_types
from anabranch.site.build import Builder
from anabranch.site.deployment import Deployment
from anabranch.site.executor import Executor
from anabranch.site.links import Links
from anabranch.site.open_stream import OpenStream, decoded, encoded
from anabranch.site.points import PointsFile
from anabranch.site.protection import Protection
from anabranch.site.readers import ReadersFile
from anabranch.site.task import Task
from anabranch.stream.restart import point_of


class Site:
    """Everything a site does is asked for through its gate's actions.

    Deploying takes four steps, so that a script is deployed whole or not at all and no tuple passes
    before everyone is there: `prepare` (build and check), `attach` (producers keep tuples for their
    consumers), `start` (tasks follow their inputs), `start_sources`.
    """

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        credentials: Credentials,
        spark: SparkSession,
        state: Path | None = None,
    ) -> None:
        """With a `state` folder the site can be killed and started again where it was."""
        self.name = name
        self._cluster = cluster
        self._config = cluster.sites.get(name) or SiteConfig(name=name)
        self._spark = spark
        if state:
            state.mkdir(parents=True, exist_ok=True)
        points = PointsFile(state / "points.json" if state else None)
        readers = ReadersFile(state / "readers.json" if state else None)
        tasks: dict[str, Task] = {}
        outlets: dict[str, LiveOutlet] = {}
        self.peers = Peers(credentials)
        self._executor = Executor(name, self._config.slots)
        self._links = Links(name, cluster, self.peers, outlets, tasks, points, readers)
        self.deployment = Deployment(
            tasks, outlets, Builder(cluster, spark, state), self._links, self._executor, points,
            readers,
        )  # fmt: skip
        self._protection = Protection(name, cluster, self.deployment, self._links, self.peers)
        self.deployment.forget = self._protection.forget
        self._closed = threading.Event()
        self._gate = Gate(
            str(self._config.listen), credentials, self._actions(), outlets.__getitem__
        )

    @property
    def address(self) -> str:
        return str(self._config.address or self._gate.address)

    def close(self) -> None:
        """Stop everything here and free the port. Idempotent."""
        self.stop()
        self.peers.close()
        self._gate.shutdown()

    def stop(self) -> None:
        """Stop everything here but the gate, so that nobody waits for us any more. Idempotent."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._protection.close()
        self.deployment.close()
        self._links.close()
        self._executor.close()

    # -- actions ---------------------------------------------------------------------------------

    def _actions(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        return {
            "ping": lambda body: {"site": self.name, "pid": os.getpid()},
            "status": lambda body: self.report(),
            "analyse": self._analyse,
            "check_types": lambda body: check_types(_columns(body["columns"])),
            "peers": lambda body: self.peers.update(body["peers"]),
            "check": self.deployment.check,
            "prepare": self.deployment.prepare,
            "attach": self._attach,
            "detach": lambda body: self._links.detach(
                body["stream"], body["consumer"], body.get("epoch")
            ),
            "place": self.deployment.place,
            "points": lambda body: self.deployment.restart_points(),
            "start": self.deployment.start,
            "start_sources": self.deployment.start_sources,
            "drop": self.deployment.drop,
            **self._protection.actions(),
            "acks": lambda body: self._links.take_acks(body["acks"]),
            "schema": lambda body: encoded(self._open_stream(body).schema().empty_table()),
            "push": lambda body: self._open_stream(body).push(decoded(body["rows"])),
            "end": lambda body: self._open_stream(body).end(),
        }

    def report(self) -> dict[str, Any]:
        outlets = list(self.deployment.outlets.items())
        return {
            "site": self.name,
            "address": self.address,
            "pid": os.getpid(),
            "tasks": [self._task_report(task) for task in list(self.deployment.tasks.values())],
            "sources": [source.report() for source in list(self.deployment.sources.values())],
            "rulers": self._links.routes.rulers(),
            "kept": {name: outlet.kept() for name, outlet in outlets},
            "traffic": {name: asdict(one.traffic) for name, one in outlets if one.traffic.tuples},
        }

    def _task_report(self, task: Task) -> dict[str, Any]:
        return task.report() | self._links.report(task) | self._protection.report(task)

    def _analyse(self, body: dict[str, Any]) -> Any:
        columns, aggregate = _columns(body["columns"]), body.get("aggregate", False)
        return analyse(self._spark, columns, body["expressions"], aggregate=aggregate)

    def learn(self, news: dict[str, Any]) -> None:
        """From the coordinator: where all sites are, and who produces what."""
        self.peers.update(news["addresses"])
        self._protection.learn(news["routes"])

    def _attach(self, body: dict[str, Any]) -> int:
        """Keep tuples for a consumer from now on, or from behind `after`."""
        outlet = self._links.outlet(body["stream"])
        known = body.get("point")
        return outlet.attach(
            body["consumer"],
            after=body.get("after"),
            point=point_of(known) if known else None,
            epoch=body.get("epoch", 0),
            lease=body.get("lease", False),
        )

    def _open_stream(self, body: dict[str, Any]) -> OpenStream:
        name = body["stream"]
        found = self.deployment.sources.get(name)
        if not isinstance(found, OpenStream):
            raise SiteError(
                f"site {self.name} has no stream {name} to push into",
                remedy="Only a stream without a source takes rows from programs.",
            )
        return found


def _columns(data: Iterable[dict[str, Any]]) -> list[Column]:
    return [Column.model_validate(one) for one in data]
