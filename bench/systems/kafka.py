"""A Kafka broker of our own, in KRaft mode: one process is broker and controller."""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from anabranch.errors import SiteError
from anabranch.spark.jdk import find_java
from bench.systems.server_process import Server, free_port, own_folder

JARS = Path(".servers/kafka")
"""Where `make servers` puts them, below a checkout."""
_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOG = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
log.retention.ms=-1
log.cleaner.dedupe.buffer.size=10485760
log.cleaner.backoff.ms=200
auto.create.topics.enable=false
num.network.threads=1
num.io.threads=2
group.initial.rebalance.delay.ms=0
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Broker:
    """Plain text on a port of 127.0.0.1; makes no topic by itself."""

    def __init__(self) -> None:
        self._jars = _jars()
        self._java = find_java() / "bin" / "java"
        self._server = Server("Kafka", own_folder("kafka"))
        port, controller = free_port(), free_port()
        self.servers = f"127.0.0.1:{port}"
        self._config = self._server.folder / "server.properties"
        self._config.write_text(
            _PROPERTIES.format(port=port, controller=controller, folder=self._server.folder)
        )
        self.admin = AdminClient(self.client())
        self._format()

    def start(self) -> None:
        self._server.start(self._command("kafka.Kafka", str(self._config)), self._answers)

    def stop(self) -> None:
        self._server.stop()

    def remove(self) -> None:
        self._server.remove()

    def client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.servers, "log_level": 0}

    def _answers(self) -> bool:
        try:
            return bool(self.admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _format(self) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # One in 64 begins with a hyphen, which would be taken for an option by itself.
        options = (f"--cluster-id={cluster}", f"--config={self._config}")
        command = self._command("kafka.tools.StorageTool", "format", *options)
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            self.remove()
            raise SiteError(f"Kafka's storage could not be made:\n{done.stdout}{done.stderr}")

    def _command(self, main: str, *arguments: str) -> Sequence[str | Path]:
        return [self._java, *_JVM, *_LOG, "-cp", f"{self._jars}/*", main, *arguments]


def _jars() -> Path:
    """The checkout's that this code is run from, else that of the present folder."""
    for root in (Path(__file__).parents[2], Path.cwd()):
        if (root / JARS / "pom.xml").exists():
            return root / JARS
    raise SiteError("this needs a Kafka broker", remedy="Run `make servers`, or name one.")
