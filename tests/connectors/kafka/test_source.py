"""The kafka source against a real broker."""

from __future__ import annotations

import json
import random
import threading
import time

import pyarrow as pa
import pytest
from confluent_kafka.admin import NewTopic

from anabranch.connectors.kafka import reading as kafka_reading
from anabranch.connectors.kafka import source as kafka_source
from anabranch.errors import CannotResume, SourceAway, SourceError
from bench.systems.server_process import free_port
from tests.connectors.reading import CheckedSource, message
from tests.link.support import eventually
from tests.servers.kafka import Kafka

COLUMNS = {"a": pa.int64(), "s": pa.string()}


def value(number: int) -> str:
    return json.dumps({"a": number, "s": f"r{number}", "ts": number * 1000})


def row(number: int) -> dict:
    return {"a": number, "s": f"r{number}", "_ts": number * 1000}


@pytest.fixture
def make(kafka, tmp_path):
    def make(topic, timestamp="ts", columns=COLUMNS, **options):
        given = {"servers": kafka.servers, "topic": topic} | options
        return CheckedSource("kafka", tmp_path, given, columns, timestamp)

    return make


def batches(source, cursor, count):
    """The first tables from `cursor` on, with their cursors; stops the source."""
    found = []
    tables = source.connector.read_from(cursor)
    rows = 0
    for table, behind in tables:
        found.append((table, behind))
        rows += table.num_rows
        if rows >= count:
            break
    tables.close()
    return found


def test_all_of_several_partitions_in_order(kafka, make):
    topic = kafka.topic(partitions=3)
    for partition in range(3):
        kafka.send(topic, [value(n) for n in range(partition, 999, 3)], partition)
    rows = make(topic, once=True).rows()
    assert sorted(one["a"] for one in rows) == [*range(999)]
    assert all(one == row(one["a"]) for one in rows)
    for partition in range(3):
        mine = [one["a"] for one in rows if one["a"] % 3 == partition]
        assert mine == [*range(partition, 999, 3)]


def test_what_comes_later_comes_soon(kafka, make):
    topic = kafka.topic()
    source = make(topic)
    tables = source.connector.read()
    threading.Timer(0.5, kafka.send, (topic, [value(1)])).start()
    assert next(tables).to_pylist() == [row(1)]
    sent = time.monotonic()
    kafka.send(topic, [value(2)])
    assert next(tables).to_pylist() == [row(2)]
    assert time.monotonic() - sent < 2
    tables.close()


def test_start_at_the_end(kafka, make):
    topic = kafka.topic()
    kafka.send(topic, [value(1)])
    connector = make(topic, start="latest").connector
    cursor = connector.start_cursor()
    assert cursor == {"0": 1}
    kafka.send(topic, [value(2)])
    table, behind = next(connector.read_from(cursor))
    assert (table.to_pylist(), behind) == ([row(2)], {"0": 2})


def test_event_time_of_the_record(kafka, make):
    topic = kafka.topic()
    kafka.send(topic, ['{"a": 1}'], timestamp=1_700_000_000_123)
    source = make(topic, None, event_time="record", once=True)
    assert source.connector.own_time
    assert source.rows() == [{"a": 1, "s": None, "_ts": 1_700_000_000_123_000}]
    assert message(lambda: make(topic, "ts", event_time="record")) == (
        "the stream takes its event time from ts and from the record. "
        "Leave out TIMESTAMP or event_time."
    )


def test_event_time_of_arrival(kafka, make):
    topic = kafka.topic()
    kafka.send(topic, [value(1)])
    source = make(topic, None, once=True)
    assert not source.connector.own_time
    assert source.rows() == [{"a": 1, "s": "r1"}]


def test_csv(kafka, make):
    topic = kafka.topic()
    kafka.send(topic, ["1,r1,1000", '2,"a,""b""\nc",2000\r\n', "3,,1970-01-01T00:00:01Z", ""])
    expected = [row(1), {"a": 2, "s": 'a,"b"\nc', "_ts": 2000}]
    expected.append({"a": 3, "s": None, "_ts": 1_000_000})
    assert make(topic, format="csv", once=True).rows() == expected
    declared = make(topic, "t", COLUMNS | {"t": pa.string()}, format="csv", once=True)
    assert [one["_ts"] for one in declared.rows()] == [1000, 2000, 1_000_000]
    record = make(topic, None, COLUMNS | {"t": pa.string()}, format="csv", event_time="record")
    assert next(record.connector.read()).column("a").to_pylist() == [1, 2, 3]


def test_records_without_a_value_are_no_rows(kafka, make):
    topic = kafka.topic()
    kafka.send(topic, [value(1), None, "", value(2)])
    source = make(topic, once=True)
    assert source.rows() == [row(1), row(2)]
    assert source.skipped == []


@pytest.mark.parametrize(
    ("format", "bad", "complaint"),
    [
        ("json", "nonsense", "malformed JSON: Expecting value at column 1"),
        ("json", "[1]", "the record is JSON, but not an object like {…}"),
        ("json", b"\xff", "the record is not valid UTF-8"),
        ("json", '{"a": "x", "ts": 1}', "a is 'x', which is no BIGINT"),
        ("json", '{"a": 1}', "the event time ts is missing"),
        ("csv", "1,x", "the record has 2 fields where the stream has 3"),
        ("csv", "1,x,5\n2,y,6", "the record holds 2 lines"),
        ("csv", '1,"x,5', "a quoted field is never closed"),
        ("csv", b"1,\xff,5", "s is not valid UTF-8: '\\udcff'"),
    ],
)
def test_malformed_records(kafka, make, format, bad, complaint):
    topic = kafka.topic(partitions=2)
    good = "7,r7,7000" if format == "csv" else value(7)
    kafka.send(topic, [good, good, bad, good], partition=1)
    assert message(lambda: make(topic, format=format, once=True).rows()) == (
        f"topic {topic}, partition 1, offset 2: {complaint}. "
        "Set on_error = 'skip' to leave such records out."
    )
    source = make(topic, format=format, once=True, on_error="skip")
    assert source.rows() == [row(7)] * 3
    assert source.skipped == [1]


def test_aborted_transactions_and_markers(kafka, make):
    topic = kafka.topic()
    producer = kafka.producer(f"x-{topic}")
    for first in range(0, 60, 10):
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce(topic, value(number))
        assert producer.flush(60) == 0  # what is to be left out has to be in the topic
        if first % 20:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    kafka.settle(topic)
    source = make(topic, once=True)
    kept = [row(n) for n in range(60) if n // 10 % 2 == 0]
    assert source.rows() == kept
    assert_rereads(source, 30)


def test_an_open_transaction_holds_nobody_up(kafka, make):
    topic = kafka.topic()
    kafka.send(topic, [value(1)])
    producer = kafka.producer(f"x-{topic}")
    producer.begin_transaction()
    producer.produce(topic, value(2))
    producer.flush(10)
    kafka.send(topic, [value(3)])
    assert make(topic, once=True).rows() == [row(1)]  # what lies behind it is not certain yet
    producer.commit_transaction(60)
    kafka.settle(topic)
    assert make(topic, once=True).rows() == [row(1), row(2), row(3)]


def assert_rereads(source, count, cursor=None):
    """Every batch is read again as it was, and their cursors can be stored as JSON."""
    assert source.connector.replayable
    begin = source.connector.start_cursor() if cursor is None else cursor
    for table, end in batches(source, begin, count):
        begin, end = json.loads(json.dumps([begin, end]))
        assert source.connector.reread(begin, end).equals(table)
        begin = end


@pytest.mark.parametrize("seed", range(4))
def test_reading_again_at_random_cuts(kafka, make, monkeypatch, seed):
    chance = random.Random(seed)
    topic = kafka.topic(partitions=3)
    for _ in range(12):
        texts = [value(chance.randrange(10**6)) for _ in range(chance.randrange(1, 80))]
        bad = ["nonsense" for _ in range(chance.randrange(3))]
        texts += bad
        chance.shuffle(texts)
        kafka.send(topic, texts, partition=chance.randrange(3))
    monkeypatch.setattr(kafka_reading, "BATCH", chance.choice([1, 7, 50, 1000]))
    source = make(topic, on_error="skip")
    count = len(make(topic, on_error="skip", once=True).rows())
    begin = source.connector.start_cursor()
    first = batches(source, begin, count)
    assert sum(table.num_rows for table, _ in first) == count
    skipped = sum(source.skipped)
    for table, end in first:
        assert source.connector.reread(begin, end).equals(table)
        begin = end
    begin = source.connector.start_cursor()
    many = list(source.connector.reread_many(begin, (end for _, end in first)))
    assert sum(number for _, number in many) == len(first)
    assert (
        pa.concat_tables([table for table, _ in many]).combine_chunks()
        == pa.concat_tables([table for table, _ in first]).combine_chunks()
    )
    assert sum(source.skipped) == skipped  # counted when first read
    # Another process goes on at any of the cursors and gets what is missing, no more and no less.
    table, cut = chance.choice(first)
    before = first.index((table, cut)) + 1
    rest = count - sum(table.num_rows for table, _ in first[:before])
    if rest:
        again = batches(make(topic, on_error="skip"), cut, rest)
        found = sorted(str(one) for table, _ in again for one in table.to_pylist())
        left = sorted(str(one) for table, _ in first[before:] for one in table.to_pylist())
        assert found == left
        assert_rereads(make(topic, on_error="skip"), rest, cut)


def test_compacted_gaps(kafka, make):
    settings = {
        "cleanup_policy": "compact",
        "segment_ms": "100",
        "min_cleanable_dirty_ratio": "0.01",
        "delete_retention_ms": "0",
    }
    topic = kafka.topic(**settings)
    for number in range(20):
        kafka.send(topic, [value(number)], key=f"k{number % 2}")
    deadline = time.monotonic() + 60
    while len(kafka.records(topic)) > 5:
        assert time.monotonic() < deadline, "the broker does not compact"
        time.sleep(0.3)
        kafka.send(topic, [value(99)], key="k1")  # a segment is closed by the next record
    connector = make(topic).connector
    while True:  # until compaction has come to rest
        rows = make(topic, once=True).rows()
        end = kafka.records(topic)[-1].offset() + 1
        again = connector.reread({"0": 0}, {"0": end}).to_pylist()
        if again == rows or time.monotonic() > deadline:
            break
    assert again == rows
    assert end > len(rows)
    assert rows[-1] in (row(19), row(99))


def test_new_partitions_are_found(kafka, make, monkeypatch):
    monkeypatch.setattr(kafka_source, "LOOK_S", 0.2)
    topic = kafka.topic()
    kafka.send(topic, [value(1)])
    source = make(topic, start="latest")
    begin = source.connector.start_cursor()
    tables = source.connector.read_from(begin)
    kafka.send(topic, [value(2)])
    assert next(tables)[1] == {"0": 2}
    kafka.add_partitions(topic, 2)
    kafka.send(topic, [value(3), value(4)], partition=1)
    table, end = next(tables)
    assert (table.to_pylist(), end) == ([row(3), row(4)], {"0": 2, "1": 2})
    assert source.connector.reread({"0": 2}, end).equals(table)
    tables.close()
    # A cursor from before they were added does for a restart.
    (again, behind), *_ = batches(make(topic), {"0": 2}, 2)
    assert (again.equals(table), behind) == (True, end)


def test_records_that_are_gone(kafka, make):
    topic = kafka.topic()
    kafka.send(topic, [value(n) for n in range(10)])
    kafka.delete_before(topic, 0, 5)
    source = make(topic)
    assert source.connector.start_cursor() == {"0": 5}
    complaint = (
        f"topic {topic}, partition 0: the records from offset 2 on are not there any more. "
        "Drop the stream and create it again; let the topic keep its records longer."
    )
    assert message(lambda: next(source.connector.read_from({"0": 2}))) == complaint
    assert message(lambda: source.connector.reread({"0": 2}, {"0": 4})) == complaint
    with pytest.raises(SourceError, match="partition 3: the partition is not there any more"):
        next(source.connector.read_from({"0": 5, "3": 1}))


def test_a_topic_of_the_same_name_is_another(kafka, make):
    topic = kafka.topic()
    kafka.send(topic, [value(n) for n in range(10)])
    kafka.admin.delete_topics([topic])[topic].result(30)
    again = NewTopic(topic, 1, 1)
    eventually(lambda: kafka.admin.create_topics([again])[topic].exception(30) is None, 30)
    kafka.send(topic, [value(n) for n in range(4)])
    complaint = (
        f"topic {topic}, partition 0: it was read up to offset 10, and ends at 4 now: the topic is"
        " not the one that was read. Drop the stream and create it again: that begins with what is"
        " there now."
    )
    with pytest.raises(CannotResume) as caught:
        next(make(topic).connector.read_from({"0": 10}))
    assert str(caught.value) == complaint
    with pytest.raises(CannotResume, match="records up to offset 10 were read, and now it ends at"):
        list(make(topic).connector.reread_many({"0": 0}, iter([{"0": 2}, {"0": 10}])))


def test_no_broker_is_a_source_that_is_away(tmp_path):
    nowhere = {"servers": f"127.0.0.1:{free_port()}", "topic": "t"}
    with pytest.raises(SourceAway, match="no Kafka broker answers"):
        CheckedSource("kafka", tmp_path, nowhere, COLUMNS, "ts")


def test_fifteen_thousand_tables_of_one_record_are_read_again_in_seconds(kafka, make):
    topic = kafka.topic(partitions=3)
    for partition in range(3):
        kafka.send(topic, [value(n) for n in range(5_000)], partition)
    ends = ({"0": (n + 3) // 3, "1": (n + 2) // 3, "2": (n + 1) // 3} for n in range(15_000))
    begun = time.monotonic()
    tables = list(make(topic).connector.reread_many({"0": 0, "1": 0, "2": 0}, ends))
    assert time.monotonic() - begun < 20
    assert sum(table.num_rows for table, _ in tables) == 15_000
    assert sum(number for _, number in tables) == 15_000
    rows = [one for table, _ in tables for one in table.column("a").to_pylist()]
    assert rows == [n // 3 for n in range(15_000)]


def test_nothing_is_committed_and_nobody_joins(kafka, make):
    topic = kafka.topic()
    kafka.send(topic, [value(1)])
    assert make(topic, once=True).rows() == make(topic, once=True).rows()
    assert "anabranch-S" not in kafka.groups()


def test_a_broker_that_comes_back(tmp_path, monkeypatch):
    monkeypatch.setattr(kafka_source, "LOOK_S", 0.2)
    broker = Kafka()
    try:
        broker.start()
        topic = broker.topic()
        broker.send(topic, [value(1)])
        given = {"servers": broker.servers, "topic": topic}
        connector = CheckedSource("kafka", tmp_path, given, COLUMNS, "ts").connector
        tables = connector.read()
        assert next(tables).to_pylist() == [row(1)]
        assert connector.problem == ""
        broker.stop()
        found = []
        waiting = threading.Thread(target=lambda: found.append(next(tables)), daemon=True)
        waiting.start()
        eventually(lambda: "no Kafka broker answers: " in connector.problem)
        broker.start()
        eventually(lambda: connector.problem == "", 60)
        broker.send(topic, [value(2)])
        waiting.join(60)
        assert [table.to_pylist() for table in found] == [[row(2)]]
        tables.close()
    finally:
        broker.remove()


def test_a_broker_that_is_not_there_yet(tmp_path, monkeypatch):
    """What goes on after a restart waits for it, and says so."""
    monkeypatch.setattr(kafka_reading, "SILENCE_S", 1e9)
    broker = Kafka()
    try:
        broker.start()
        topic = broker.topic()
        broker.send(topic, [value(1)])
        broker.stop()
        given = {"servers": broker.servers, "topic": topic}
        connector = CheckedSource("kafka", tmp_path, given, COLUMNS, "ts", resume=True).connector
        with pytest.raises(SourceAway, match="no Kafka broker answers: Connection refused"):
            list(connector.reread_many({"0": 0}, iter([{"0": 1}])))
        tables = connector.read_from({"0": 0})
        found = []
        waiting = threading.Thread(target=lambda: found.append(next(tables)[0]), daemon=True)
        waiting.start()
        eventually(lambda: "no Kafka broker answers: Connection refused" in connector.problem, 60)
        broker.start()
        waiting.join(60)
        assert [table.to_pylist() for table in found] == [[row(1)]]
        assert connector.problem == ""
        tables.close()
    finally:
        broker.remove()


def test_mistakes(kafka, make):
    assert message(lambda: make("no-such")) == (
        f"{kafka.servers}: there is no topic 'no-such'. Create it first: "
        f"kafka-topics.sh --create --topic no-such --bootstrap-server {kafka.servers}"
    )
    nowhere = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    assert message(lambda: make("t", servers=nowhere)) == (
        f"{nowhere}: no Kafka broker answers: Connection refused. "
        "Check servers, and that a broker runs there."
    )
    assert time.monotonic() - began < 8
    topic = kafka.topic()
    assert message(lambda: make(topic, sart="latest")) == (
        "kafka() has no option 'sart', and may not set librdkafka's. Did you mean 'start'?"
    )
    assert message(lambda: make(topic, **{"isolation.level": "read_uncommitted"})) == (
        "kafka() sets isolation.level itself. Leave it out."
    )
    assert message(lambda: make(topic, **{"auto.offset.reset": "earliest"})) == (
        "kafka() sets auto.offset.reset itself. Use the option 'start'."
    )
    assert message(lambda: make(topic, **{"security.protocol": "magic"})) == (
        'kafka(): Invalid value "magic" for configuration property "security.protocol". '
        "Check the settings of the client."
    )
    assert make(topic, once=True, **{"client.id": "me", "check.crcs": True}).rows() == []
