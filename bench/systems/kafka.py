"""A Kafka broker of our own, in KRaft mode: one process is broker and controller."""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

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

    def kill(self) -> None:
        self._server.kill()

    def processes(self) -> list[psutil.Process]:
        """All of the server's."""
        return self._server.processes()

    def remove(self) -> None:
        self._server.remove()

    def topic(self, partitions: int = 1, **config: str) -> str:
        """The name of a new topic; `cleanup_policy` is written with a dot."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        made = NewTopic(name, partitions, 1, config=settings)
        self.admin.create_topics([made])[name].result(30)
        return name

    def records(self, topic: str, isolation: str = "read_committed") -> list[Message]:
        """All there is, partition by partition."""
        settings = {"group.id": "all", "isolation.level": isolation, "enable.partition.eof": True}
        consumer = Consumer(self.client() | settings | {"fetch.wait.max.ms": 10})
        try:
            count = len(consumer.list_topics(topic, 30).topics[topic].partitions)
            return [one for number in range(count) for one in _read(consumer, topic, number)]
        finally:
            consumer.close()

    def client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.servers, "log_level": 0}

    def reader(self, topic: str) -> Consumer:
        """Of partition 0 from its first record on, of what is committed."""
        consumer = Consumer(
            self.client() | {"group.id": "reader", "isolation.level": "read_committed"}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        return consumer

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


def _read(consumer: Consumer, topic: str, partition: int) -> Iterator[Message]:
    consumer.assign([TopicPartition(topic, partition, 0)])
    while True:
        message = consumer.poll(30)
        if message is None:
            raise SiteError("Kafka does not answer")
        if message.error():
            return
        yield message


def _jars() -> Path:
    """The checkout's that this code is run from, else that of the present folder."""
    for root in (Path(__file__).parents[2], Path.cwd()):
        if (root / JARS / "pom.xml").exists():
            return root / JARS
    raise SiteError("this needs a Kafka broker", remedy="Run `make servers`, or name one.")
