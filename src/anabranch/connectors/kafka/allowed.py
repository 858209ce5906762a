"""Which settings of librdkafka a statement may choose, by their names.

It may choose no other: some of those load a library, run a command or call a web address. Settings
that name a file may name one in the folder that the operator has set aside for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.connectors.operator import check_file
from anabranch.connectors.options import unknown

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
