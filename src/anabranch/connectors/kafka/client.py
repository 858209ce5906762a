"""What the kafka source and the kafka sink have in common: options, the settings of librdkafka
that a statement may choose, and finding a topic.

A statement may choose no other settings: some of those load a library, run a command or call a web
address. Settings that name a file may name one in the folder that the operator has set aside for
that.

Options that are not ours go to librdkafka, which knows its settings by name, if a statement may
choose them (`allowed`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException

from anabranch.connectors.operator import check_file
from anabranch.connectors.options import TEXT, Option, unknown
from anabranch.errors import AnabranchError, ConfigError

_SECURITY = """
    security.protocol sasl.mechanism sasl.mechanisms sasl.username sasl.password
    sasl.kerberos.service.name sasl.kerberos.principal
    ssl.cipher.suites ssl.curves.list ssl.sigalgs.list ssl.key.password ssl.keystore.password
    ssl.ca.pem ssl.key.pem ssl.certificate.pem ssl.endpoint.identification.algorithm
    enable.ssl.certificate.verification"""
_CONNECTIONS = """
    client.id client.rack client.dns.lookup broker.address.family broker.address.ttl
    broker.version.fallback api.version.request api.version.request.timeout.ms
    api.version.fallback.ms connections.max.idle.ms socket.timeout.ms socket.keepalive.enable
    socket.nagle.disable socket.send.buffer.bytes socket.receive.buffer.bytes socket.max.fails
    socket.connection.setup.timeout.ms reconnect.backoff.ms reconnect.backoff.max.ms
    retry.backoff.ms retry.backoff.max.ms metadata.max.age.ms
    topic.metadata.refresh.interval.ms topic.metadata.refresh.fast.interval.ms
    topic.metadata.refresh.sparse topic.metadata.propagation.max.ms
    max.in.flight max.in.flight.requests.per.connection message.max.bytes
    message.copy.max.bytes receive.message.max.bytes allow.auto.create.topics"""
_READING = """
    group.id session.timeout.ms heartbeat.interval.ms max.poll.interval.ms check.crcs
    fetch.wait.max.ms fetch.queue.backoff.ms fetch.message.max.bytes max.partition.fetch.bytes
    fetch.max.bytes fetch.min.bytes fetch.error.backoff.ms
    queued.min.messages queued.max.messages.kbytes"""
_WRITING = """
    acks request.required.acks request.timeout.ms message.timeout.ms delivery.timeout.ms
    transactional.id transaction.timeout.ms partitioner sticky.partitioning.linger.ms
    compression.codec compression.type compression.level linger.ms batch.size
    batch.num.messages queue.buffering.max.messages queue.buffering.max.kbytes
    queue.buffering.max.ms queue.buffering.backpressure.threshold
    message.send.max.retries retries"""
_FILES = """
    ssl.ca.location ssl.key.location ssl.certificate.location ssl.crl.location
    ssl.keystore.location sasl.kerberos.keytab"""
FILES = frozenset(_FILES.split())
ALLOWED = FILES.union(*map(str.split, (_SECURITY, _CONNECTIONS, _READING, _WRITING)))


def check(passed: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises ConfigError for a setting that a statement may not choose, and for a file that it may
    not name. `known` are our own options, one of which may have been meant.
    """
    for name, value in passed.items():
        if name not in ALLOWED:
            message = f"kafka() has no option {name!r}, and may not set librdkafka's"
            raise unknown(message, name, [*known, *ALLOWED])
        if name in FILES:
            check_file("kafka", name, str(value))


SERVERS = Option("servers", TEXT, "one or more brokers: 'host:port, host:port'", required=True)
TOPIC = Option("topic", TEXT, "an existing topic", required=True)
PATIENCE_S = 5.0
"""How long a broker may take to answer when a stream or query is created."""

_OURS = {
    "bootstrap.servers": "servers",
    "enable.auto.commit": None,
    "enable.auto.offset.store": None,
    "enable.idempotence": None,
    "enable.partition.eof": None,
    "auto.offset.reset": "start",
    "isolation.level": None,
}
"""Settings that what we promise depends on, and our option in their place."""
_ANEW = "Drop the stream and create it again: that begins with what is there now."
_PASSING = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._WAIT_COORD,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
)
"""What goes by itself: no broker answers, or one that has just come up has not yet found its part.
librdkafka does not say of all of these that they may be tried again."""
_NO_SUCH = re.compile(r'No such configuration property: "(.*)"')
_CONNECT = re.compile(r"^(?:\S+/\S+: )?(?:.*failed: )?(.*?)(?: \((?:[^()]|\([^()]*\))*\))*$")
"""In `127.0.0.1:1/bootstrap: Connect to … failed: Connection refused (after 0ms …)`, the reason."""


def client_settings(
    servers: str, passed: Mapping[str, Any], known: Iterable[str] = ()
) -> dict[str, object]:
    """librdkafka's settings. Raises ConfigError for those that a user may not choose. `known` are
    our own options, one of which may have been meant.
    """
    for name in passed:
        if name in _OURS:
            instead = _OURS[name]
            raise ConfigError(
                f"kafka() sets {name} itself",
                remedy=f"Use the option {instead!r}." if instead else "Leave it out.",
            )
    check(passed, known)
    words = {name: str(v).lower() if isinstance(v, bool) else v for name, v in passed.items()}
    # Its log goes to stderr, past everything; errors reach us anyway.
    return {"bootstrap.servers": servers, "log_level": 0} | words


def passes(error: KafkaError) -> bool:
    """Whether the same call may work later, without anybody doing anything about it."""
    return bool(error.retriable()) or error.code() in _PASSING


def make_client(
    kind: Callable[[dict[str, object]], Any], settings: dict[str, object], known: Iterable[str]
) -> Any:
    """A Consumer or Producer. ConfigError names the setting that librdkafka refuses."""
    try:
        return kind(settings)
    except KafkaException as error:
        text = error.args[0].str()
    missing = _NO_SUCH.match(text)
    if missing:
        name = missing[1]
        raise unknown(f"kafka() has no option {name!r}, nor has librdkafka", name, known)
    raise ConfigError(f"kafka(): {text}", remedy="Check the settings of the client.")


E = TypeVar("E", bound=AnabranchError, covariant=True)


class Topic(Generic[E]):
    """A topic, which a consumer without a group asks about. Its errors are of the class
    `failure`.
    """

    trouble_at = float("-inf")
    """When librdkafka last said that it cannot reach a broker."""

    def __init__(
        self,
        servers: str,
        name: str,
        settings: dict[str, object],
        failure: type[E],
        away: type[E] | None = None,
        lost: type[E] | None = None,
    ) -> None:
        """`away` is raised if no broker answers, `lost` if records that existed are gone."""
        self.name = name
        self._lost = lost or failure
        self._away = away or failure
        self._servers = servers
        self._settings = settings
        self._failure = failure
        self._trouble = ""

    def partitions(self, known: Iterable[str] = ()) -> list[int]:
        """The partitions, from a broker. Fails within seconds if none answers or the topic does not
        exist.
        """
        consumer = make_client(Consumer, self._settings | {"error_cb": self.note}, known)
        try:
            return self.numbers(consumer, PATIENCE_S, lambda: consumer.poll(0))
        finally:
            consumer.close()

    def numbers(
        self, consumer: Consumer, timeout_s: float, ask_why: Callable[[], Any] = lambda: None
    ) -> list[int]:
        """The partitions, ascending. `ask_why` makes librdkafka call `note` with what went wrong.
        It may take a record, so a reader of records does not call it.
        """
        try:
            topic = consumer.list_topics(self.name, timeout_s).topics[self.name]
        except KafkaException as error:
            ask_why()
            raise self.away(error.args[0]) from error
        if topic.error is not None:
            raise self.away(topic.error) if passes(topic.error) else self._missing(topic.error)
        return sorted(topic.partitions)

    def failed(self, message: str, remedy: str = "", partition: int | None = None) -> E:
        place = f"topic {self.name}"
        if partition is not None:
            place += f", partition {partition}"
        return self._failure(message, place=place, remedy=remedy)

    def passing(self, message: str, partition: int | None = None) -> E:
        """The error for a failure that goes away by itself."""
        place = f"topic {self.name}" + ("" if partition is None else f", partition {partition}")
        return self._away(message, place=place)

    def asked(self, error: KafkaError, partition: int) -> E:
        """The error for a question about a partition that a broker did not answer."""
        if passes(error):
            return self.away(error)
        return self.failed(error.str(), partition=partition)

    def lost(self, message: str, partition: int, remedy: str = _ANEW) -> E:
        """The error that records which were read do not exist any more."""
        return self._lost(message, place=f"topic {self.name}, partition {partition}", remedy=remedy)

    def note(self, error: KafkaError) -> None:
        """librdkafka calls this with what went wrong on the way to a broker."""
        self.trouble_at = time.monotonic()
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._trouble = error.str()

    def away(self, error: KafkaError | None = None) -> E:
        """The error that no broker answers."""
        reason = _CONNECT.search(self._trouble)
        detail = (reason[1] if reason else self._trouble) or (error.str() if error else "")
        return self._away(
            "no Kafka broker answers" + (f": {detail}" if detail else ""),
            place=self._servers,
            remedy="Check servers, and that a broker runs there.",
        )

    def _missing(self, error: KafkaError) -> E:
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return self._failure(
                f"there is no topic {self.name!r}",
                place=self._servers,
                remedy="Create it first: kafka-topics.sh --create --topic "
                f"{self.name} --bootstrap-server {self._servers}",
            )
        return self.failed(error.str())
