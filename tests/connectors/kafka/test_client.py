"""What the source and the sink have in common, without a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from anabranch.connectors.kafka import sink as kafka_sink
from anabranch.connectors.kafka.client import Topic
from anabranch.errors import SinkAway, SinkError, SourceError
from anabranch.runtime.loop import REAL_TIME


class Said:
    """An error as librdkafka hands it to a callback."""

    def __init__(self, text: str) -> None:
        self._text = text

    def code(self) -> int:
        return 0

    def str(self) -> str:
        return self._text


@pytest.mark.parametrize("more", ["", ", 1 identical error(s) suppressed"])
def test_the_reason_why_no_broker_answers_is_told_without_its_circumstances(more: str) -> None:
    topic = Topic("127.0.0.1:1", "t", {}, SourceError)
    failed = "Connect to ipv4#127.0.0.1:1 failed: Connection refused"
    topic.note(Said(f"127.0.0.1:1/bootstrap: {failed} (after 0ms in state CONNECT{more})"))  # type: ignore[arg-type]
    assert (
        topic.away().line().startswith("127.0.0.1:1: no Kafka broker answers: Connection refused. ")
    )


def test_a_coordinator_that_is_not_there_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_sink, "_PAUSE_S", 0.0)
    answers = iter([KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, None])

    def ask(timeout_s: float) -> str:
        if code := next(answers):
            raise KafkaException(KafkaError(code))
        return "noted"

    made = kafka_sink.KafkaSink.__new__(kafka_sink.KafkaSink)
    made._time = REAL_TIME
    assert made._persist(ask) == "noted"
    answers = iter([KafkaError.GROUP_AUTHORIZATION_FAILED])
    with pytest.raises(KafkaException):
        made._persist(ask)


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "LEADER_NOT_AVAILABLE", "_TRANSPORT"])
def test_what_a_broker_says_that_has_just_come_up_passes(code: str) -> None:
    topic: Topic[SinkError] = Topic("localhost:1", "t", {}, SinkError, SinkAway)
    assert isinstance(topic.asked(KafkaError(getattr(KafkaError, code)), 0), SinkAway)
    refused = topic.asked(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), 0)
    assert not isinstance(refused, SinkAway)
