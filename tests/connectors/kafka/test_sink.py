"""The kafka sink against a real broker."""

from __future__ import annotations

import csv
import json
import threading
import time
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from anabranch.connectors import SinkContext, make_sink
from anabranch.connectors.kafka import sink as kafka_sink
from anabranch.connectors.kafka import written as kafka_written
from anabranch.connectors.kafka.written import Notes, Tail
from anabranch.connectors.sink import Beginning, Continued
from anabranch.errors import Fenced, SinkAway, SinkBehind, SinkError
from bench.systems.server_process import free_port
from tests.connectors.reading import UTC_MICROS, CheckedSource, message, no_spark
from tests.connectors.writing import COLUMNS, numbered, schema_of, sink, table_of
from tests.servers.kafka import Kafka


@pytest.fixture
def topic(kafka: Kafka) -> str:
    return kafka.topic()


@pytest.fixture
def make(kafka, topic, tmp_path):
    """Sinks to `topic`, which go on where an earlier one of their query was."""
    made = []

    def make(query="q", run="", columns=COLUMNS, resume=True, **options):
        given = {"servers": kafka.servers, "topic": topic} | options
        context = SinkContext(
            query, schema_of(columns), given, tmp_path, no_spark, run=run, resume=resume
        )
        made.append(make_sink("kafka", context))
        return made[-1]

    yield make
    for one in made:
        one.close()


def opened(sink):
    sink.open()
    return sink


def values(kafka, topic):
    return [json.loads(record.value()) for record in kafka.records(topic)]


def test_values_headers_times_and_keys(kafka, topic, make):
    opened(make(key="S")).write(numbered(1, 3))
    records = kafka.records(topic)
    assert [json.loads(record.value()) for record in records] == numbered(1, 3).to_pylist()
    assert [record.timestamp()[1] for record in records] == [1, 2, 3]
    assert [record.key() for record in records] == [b"r1", b"r2", b"r3"]
    assert [dict(record.headers()) for record in records] == [
        {"query": b"q", "pos": b"%d" % position} for position in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    ("type", "value", "key"),
    [
        (pa.int64(), 7, b"7"),
        (pa.string(), None, None),
        (pa.binary(), b"\x00\xff", b"\x00\xff"),
        (pa.bool_(), True, b"true"),
        (pa.int64(), None, None),
    ],
)
def test_keys_of_any_type(kafka, topic, make, type, value, key):
    columns = {"k": type}
    opened(make(columns=columns, key="k")).write(table_of(columns, [(value,)]))
    assert [record.key() for record in kafka.records(topic)] == [key]


def test_the_same_key_goes_to_the_same_partition(kafka, tmp_path):
    topic = kafka.topic(partitions=4)
    given = {"servers": kafka.servers, "topic": topic, "key": "s"}
    rows = table_of(COLUMNS, [(i, f"k{i % 7}") for i in range(200)])
    opened(sink("kafka", tmp_path, **given)).write(rows)
    records = kafka.records(topic)
    found = {record.key(): record.partition() for record in records}
    assert len(records) == 200
    assert all(found[record.key()] == record.partition() for record in records)
    assert len({*found.values()}) > 1
    by_key = [[r["a"] for r in map(load, records) if r["s"] == f"k{k}"] for k in range(7)]
    assert by_key == [[*range(k, 200, 7)] for k in range(7)]


def load(record):
    return json.loads(record.value())


@pytest.mark.parametrize("format", ["json", "csv"])
def test_every_type_comes_back_through_the_source(kafka, topic, make, tmp_path, format):
    columns = {
        "t": pa.bool_(),
        "i": pa.int32(),
        "d": pa.float64(),
        "n": pa.decimal128(10, 2),
        "s": pa.string(),
        "at": UTC_MICROS,
        "day": pa.date32(),
        "list": pa.list_(pa.int64()),
        "st": pa.struct([("p", pa.string())]),
    }
    moment = datetime(2026, 1, 31, 12, 0, 0, 5, UTC)
    rows = [
        (True, -7, 0.1, Decimal("1.50"), 'a "b",\nc', moment, moment.date(), [1, 2], {"p": "x"}),
        (None,) * len(columns),
        (False, 0, float("inf"), Decimal("-0.01"), "é", moment, moment.date(), [], {"p": None}),
    ]
    table = table_of(columns, rows)
    opened(make(columns=columns, format=format)).write(table)
    kafka.settle(topic)
    given = {"servers": kafka.servers, "topic": topic, "format": format, "once": True}
    source = CheckedSource("kafka", tmp_path, given, columns | {"_pos": pa.int64()}, "_ts")
    assert source.rows() == table.to_pylist()


def test_csv_is_that_of_the_csv_sink(kafka, topic, make, tmp_path):
    rows = table_of(COLUMNS, [(1, "x"), (None, None), (3, 'say "hi"\nthere'), (4, "")])
    opened(make(format="csv")).write(rows)
    file = sink("csv", tmp_path, path="out.csv", header=False)
    opened(file).write(rows)
    file.close()
    lines = [record.value().decode() for record in kafka.records(topic)]
    in_file = list(csv.reader((tmp_path / "out.csv").read_text().splitlines(keepends=True)))
    assert list(csv.reader(f"{line}\n" for line in lines)) == in_file


def test_a_failing_write_leaves_nothing(kafka, topic, make):
    made = opened(make())
    made.write(numbered(1, 2))
    huge = table_of(COLUMNS, [(3, "x"), (4, "y" * 3_000_000), (5, "z")], first=3)
    with pytest.raises(SinkError, match="too large"):
        made.write(huge)
    assert values(kafka, topic) == numbered(1, 2).to_pylist()
    made.write(numbered(3, 2))
    assert values(kafka, topic) == numbered(1, 4).to_pylist()
    assert made.written() == 4


def test_an_unfinished_transaction_is_invisible_and_ended_by_the_next_instance(
    kafka, topic, make, monkeypatch
):
    made = opened(make())
    made.write(numbered(1, 10))
    # The process "dies" between the last record and the commit.
    monkeypatch.setattr(made, "_persist", lambda call: made._writer.producer.flush(10))
    made.write(numbered(11, 10))
    monkeypatch.undo()
    assert len(kafka.records(topic, "read_uncommitted")) == 20
    assert values(kafka, topic) == numbered(1, 10).to_pylist()
    again = opened(make())
    assert again.written() == 10
    again.write(numbered(11, 5))
    assert values(kafka, topic) == numbered(1, 15).to_pylist()
    assert again.written() == 15


def test_a_new_instance_fences_the_old_one(kafka, topic, make):
    old = opened(make())
    old.write(numbered(1, 2))
    new = opened(make())
    with pytest.raises(Fenced) as fenced:
        old.write(numbered(3, 2))
    assert str(fenced.value) == (
        f"topic {topic}: q is written by another instance: another writes now. "
        "Only the newest may; this one stops."
    )
    old.close()
    new.write(numbered(3, 1))
    assert values(kafka, topic) == numbered(1, 3).to_pylist()


def test_written_among_others_and_over_partitions(kafka, tmp_path, monkeypatch):
    monkeypatch.setattr(kafka_written, "WINDOW", 4)
    monkeypatch.setattr(Notes, "read", lambda self, timeout_s: None)  # as of before notes
    topic = kafka.topic(partitions=3)
    given = {"servers": kafka.servers, "topic": topic, "key": "a"}

    def make(query, run=""):
        context = SinkContext(query, schema_of(COLUMNS), given, tmp_path, no_spark, run, True)
        return make_sink("kafka", context)

    mine = opened(make("mine", "1"))
    assert mine.written() == 0
    mine.write(numbered(1, 57))
    other = opened(make("other"))
    other.write(numbered(1, 300))
    kafka.send(topic, ["{}"] * 100, partition=1)
    assert opened(make("mine", "1")).written() == 57
    assert opened(make("mine")).written() == 57
    assert opened(make("mine", "2")).written() == 0
    assert opened(make("other")).written() == 300
    assert opened(make("third")).written() == 0


def test_a_query_that_begins_anew_has_written_nothing(kafka, topic, make):
    opened(make()).write(numbered(1, 5))
    anew = opened(make(resume=False))
    assert anew.written() == 0
    anew.write(numbered(1, 2))
    assert values(kafka, topic) == numbered(1, 5).to_pylist() + numbered(1, 2).to_pylist()


def test_written_waits_for_the_transactions_of_others(kafka, topic, make, monkeypatch):
    made = opened(make())
    made.write(numbered(1, 5))
    other = kafka.producer(f"x-{topic}")
    other.begin_transaction()
    other.produce(topic, "{}")
    other.flush(10)
    made.write(numbered(6, 5))  # not to be seen as long as the other one is open
    with monkeypatch.context() as hasty:
        hasty.setattr(kafka_written, "OTHERS_S", 0.5)
        again = make()
        assert "somebody else's transaction is open for more than 0.5 s" in message(again.open)
    threading.Timer(0.5, other.abort_transaction, (10,)).start()
    assert opened(again).written() == 10


def test_old_event_times(kafka, topic, make):
    rows = pa.table({"a": [1], "s": ["x"], "_pos": [1], "_ts": [-5_000_000]})
    opened(make()).write(rows.cast(schema_of(COLUMNS)))
    (record,) = kafka.records(topic)
    assert (record.timestamp()[1], json.loads(record.value())["_ts"]) == (1, -5_000_000)


def test_more_than_the_producer_holds(kafka, topic, make):
    opened(make(**{"queue.buffering.max.messages": 1000})).write(numbered(1, 25_000))
    assert values(kafka, topic) == numbered(1, 25_000).to_pylist()


def test_mistakes(kafka, topic, make):
    assert message(lambda: make(key="b")) == (
        "kafka() has key = 'b', which is no column. There is a, s."
    )
    assert message(lambda: make(topic="no-such")) == (
        f"{kafka.servers}: there is no topic 'no-such'. Create it first: "
        f"kafka-topics.sh --create --topic no-such --bootstrap-server {kafka.servers}"
    )
    nowhere = f"127.0.0.1:{free_port()}"
    assert message(lambda: make(servers=nowhere, resume=False)) == (
        f"{nowhere}: no Kafka broker answers: Connection refused. "
        "Check servers, and that a broker runs there."
    )
    assert "Did you mean 'format'?" in message(lambda: make(fromat="csv"))


def taken(call):
    """The same again, until it works: a broker that has just come up answers, and does not know
    yet what it is there for."""
    while True:
        try:
            return call()
        except SinkAway:
            time.sleep(0.1)


def test_a_broker_that_goes_away(tmp_path, monkeypatch):
    broker = Kafka()
    try:
        broker.start()
        topic = broker.topic()
        made = opened(sink("kafka", tmp_path, servers=broker.servers, topic=topic))
        made.write(numbered(1, 2))
        broker.stop()
        with monkeypatch.context() as hasty:
            hasty.setattr(kafka_sink, "PATIENCE_S", 1.0)
            hasty.setattr(kafka_sink, "_TRY_S", 1.0)
            with pytest.raises(SinkAway, match="no broker"):
                made.write(numbered(3, 1))
            with pytest.raises(SinkAway, match="no Kafka broker answers"):
                made.write(numbered(3, 1))
        given = {"servers": broker.servers, "topic": topic}
        context = SinkContext("q", schema_of(COLUMNS), given, tmp_path, no_spark, resume=True)
        resumed = make_sink("kafka", context)  # what goes on waits for it when it is opened
        broker.start()
        taken(lambda: made.write(numbered(3, 1)))
        taken(lambda: made.write(numbered(4, 1)))
        taken(resumed.open)
        again = resumed
        assert again.written() == 4
        again.write(numbered(5, 1))
        for one in (made, again):
            one.close()
        assert values(broker, topic) == numbered(1, 5).to_pylist()
    finally:
        broker.remove()


# -- notes at the broker -------------------------------------------------------------------------


def at(sink, epoch, after=0):
    sink.open(Beginning(epoch, after))
    return sink


def test_a_topic_that_others_write_to_is_not_read_back(kafka, topic, make, monkeypatch):
    monkeypatch.setattr(kafka_sink, "NOTE_S", 0.0)
    made = opened(make(run="r1"))
    for first in (1, 11, 21):
        made.write(numbered(first, 10))
    kafka.send(topic, ["{}"] * 5_000)
    begun = []
    whole = Tail._greatest

    def greatest(self, number, begin, end):
        begun.append(begin)
        return whole(self, number, begin, end)

    monkeypatch.setattr(Tail, "_greatest", greatest)
    again = opened(make(run="r1"))
    assert again.written() == 30
    assert begun == [21]  # behind the second write, as the note with the third one knew
    again.close()
    third = opened(make(run="r1"))
    assert third.written() == 30
    assert begun[1] > 5_000


def test_what_was_written_since_the_last_note_is_found(kafka, topic, make):
    made = opened(make(run="r1"))
    made.write(numbered(1, 10))
    made.write(numbered(11, 10))
    again = opened(make(run="r1"))
    assert again.written() == 20


def test_retention_does_not_look_like_loss_and_loss_not_like_retention(kafka, topic, make):
    made = opened(make(run="r1"))
    made.write(numbered(1, 10))
    kafka.delete_before(topic, 0, -1)
    kept = Continued(make(run="r1"))
    kept.open(Beginning(after=10))
    assert kept.holds(1, 15) == 10
    with pytest.raises(SinkBehind, match="up to position 10, but those up to 12 were ackn"):
        Continued(make(run="r1")).open(Beginning(after=12))
    loss = Continued(make(run="r1"))
    loss.open(Beginning(after=12, without=(11, 12)))
    assert loss.holds(1, 15) == 12


def test_a_topic_that_was_made_again_is_not_taken_for_what_retention_left(kafka, topic, make):
    """With it the broker has forgotten the note that was there."""
    made = opened(make(run="r1"))
    made.write(numbered(1, 10))
    made.close()
    kafka.make_again(topic)
    with pytest.raises(SinkBehind, match="up to position 0, but those up to 10 were ackn"):
        Continued(make(run="r1")).open(Beginning(after=10))


def test_the_later_epoch_and_the_later_run_write(kafka, topic, make):
    old = at(make(run="r1"), 1)
    old.write(numbered(1, 2))
    new = at(make(run="r1"), 2)
    with pytest.raises(Fenced, match="another site writes since epoch 2"):
        old.write(numbered(3, 2))
    new.write(numbered(3, 1))
    with pytest.raises(Fenced):
        at(make(run="r1"), 1)
    new.write(numbered(4, 1))  # who has no right disturbs nobody
    anew = at(make(run="r2", resume=False), 0)
    assert anew.written() == 0
    with pytest.raises(Fenced, match="created anew since"):
        new.write(numbered(5, 1))
    anew.write(numbered(1, 1))
    assert [one["a"] for one in values(kafka, topic)] == [1, 2, 3, 4, 1]
