"""A Kafka broker of our own, in KRaft mode: one process is broker and controller."""

from __future__ import annotations

import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from anabranch.site.jdk import find_java
from tests.servers.process import Server, free_port, own_folder

JARS = Path(__file__).parents[2] / ".servers" / "kafka"
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


class Kafka:
    def __init__(self) -> None:
        if not (JARS / "pom.xml").exists():
            raise RuntimeError(f"there is no Kafka in {JARS}; run `make servers`")
        self._java = find_java() / "bin" / "java"
        self._server = Server("Kafka", own_folder("kafka"))
        port, controller = free_port(), free_port()
        self.servers = f"127.0.0.1:{port}"
        self._config = self._server.folder / "server.properties"
        self._config.write_text(
            _PROPERTIES.format(port=port, controller=controller, folder=self._server.folder)
        )
        self._admin = AdminClient(self._client())
        self._format()

    def start(self) -> None:
        self._server.start(self._command("kafka.Kafka", str(self._config)), self._answers)

    def stop(self) -> None:
        self._server.stop()

    def remove(self) -> None:
        self._server.remove()

    def topic(self, partitions: int = 1, **config: str) -> str:
        """The name of a new topic; `cleanup_policy` is written with a dot."""
        name = f"t-{uuid.uuid4().hex[:12]}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        made = NewTopic(name, partitions, 1, config=settings)
        self._admin.create_topics([made])[name].result(30)
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(30)

    def groups(self) -> set[str]:
        """The consumer groups that the broker knows."""
        return {group.group_id for group in self._admin.list_consumer_groups().result(30).valid}

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """As retention does."""
        place = TopicPartition(topic, partition, offset)
        self._admin.delete_records([place])[place].result(30)

    def send(self, topic: str, values: Iterable[Any], partition: int = 0, **more: Any) -> None:
        """Plain records, one by one; texts are sent as UTF-8."""
        producer = Producer(self._client() | {"queue.buffering.max.messages": 2_000_000})
        for value in values:
            producer.produce(topic, value, partition=partition, **more)
        assert producer.flush(30) == 0

    def producer(self, transactional_id: str) -> Producer:
        made = Producer(self._client() | {"transactional.id": transactional_id})
        made.init_transactions(30)
        return made

    def settle(self, topic: str, patience_s: float = 2.0) -> None:
        """Wait until what is committed can be seen, which a broker brings about a little later; or
        give up, since a transaction is open."""
        goal = self._ends(topic, "read_uncommitted")
        deadline = time.monotonic() + patience_s
        while self._ends(topic, "read_committed") != goal and time.monotonic() < deadline:
            time.sleep(0.02)

    def _ends(self, topic: str, isolation: str) -> list[int]:
        consumer = Consumer(self._client() | {"group.id": "test", "isolation.level": isolation})
        try:
            numbers = sorted(consumer.list_topics(topic, 30).topics[topic].partitions)
            places = [TopicPartition(topic, number) for number in numbers]
            return [consumer.get_watermark_offsets(place, timeout=30)[1] for place in places]
        finally:
            consumer.close()

    def records(self, topic: str, isolation: str = "read_committed") -> list[Message]:
        """All there is, partition by partition."""
        if isolation == "read_committed":
            self.settle(topic)
        settings = {"group.id": "test", "isolation.level": isolation, "enable.partition.eof": True}
        consumer = Consumer(self._client() | settings | {"fetch.wait.max.ms": 10})
        try:
            count = len(consumer.list_topics(topic, 30).topics[topic].partitions)
            return [one for number in range(count) for one in _read(consumer, topic, number)]
        finally:
            consumer.close()

    def _client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.servers, "log_level": 0}

    def _answers(self) -> bool:
        try:
            return bool(self._admin.list_topics(timeout=1).brokers)
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
            raise RuntimeError(f"Kafka's storage could not be made:\n{done.stdout}{done.stderr}")

    def _command(self, main: str, *arguments: str) -> Sequence[str | Path]:
        return [self._java, *_JVM, *_LOG, "-cp", f"{JARS}/*", main, *arguments]


def _read(consumer: Consumer, topic: str, partition: int) -> list[Message]:
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "the broker does not answer"
        if message.error():
            return found
        found.append(message)
