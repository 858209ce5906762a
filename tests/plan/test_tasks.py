"""From a query to the tasks that run it."""

from __future__ import annotations

from anabranch.plan.operators import Call
from anabranch.plan.tasks import sink_task, tasks_of
from tests.plan.samples import FAHRENHEIT, HOT, TEMP, a_query, a_stream

JSONL = Call(name="jsonl", options={"path": "out.jsonl"})


def test_a_query_without_a_sink_is_one_task() -> None:
    (task,) = tasks_of(a_query("hot", "Sensor1", HOT, FAHRENHEIT), lambda name: a_stream())
    (source,) = task.inputs
    assert (task.name, task.query, task.site, task.output) == ("hot", "hot", "centre", "hot")
    assert (source.stream, source.site, source.alias) == ("Sensor1", "room1", "s")
    assert (task.operators, task.columns, task.base) == ((HOT, FAHRENHEIT), TEMP, "/data")
    assert task.sink is None


def test_a_sink_reads_the_querys_stream_like_any_consumer() -> None:
    main, sink = tasks_of(a_query("hot", "Sensor1", HOT, sink=JSONL), lambda name: a_stream())
    (source,) = sink.inputs
    assert sink.name == sink_task("hot") != main.name
    assert (sink.query, sink.site, sink.output, sink.sink) == ("hot", "centre", None, JSONL)
    assert (source.stream, source.site) == (main.output, main.site)
    assert (sink.operators, sink.columns, sink.base) == ((), TEMP, "/data")
    assert main.sink is None


def test_a_sink_at_another_site_reads_from_where_the_query_runs() -> None:
    query = a_query("hot", "Sensor1", HOT, sink=JSONL, sink_site="hall")
    main, sink = tasks_of(query, lambda name: a_stream())
    (source,) = sink.inputs
    assert (main.site, sink.site) == ("centre", "hall")
    assert (source.stream, source.site) == ("hot", "centre")
    same = tasks_of(a_query("hot", "Sensor1", HOT, sink=JSONL), lambda name: a_stream())
    assert (main, sink.model_copy(update={"site": "centre"})) == same


def test_a_query_over_a_query_reads_it_where_it_runs() -> None:
    (task,) = tasks_of(
        a_query("hotter", "hot", site="room2"), lambda name: a_query(name, site="centre")
    )
    assert [(one.stream, one.site) for one in task.inputs] == [("hot", "centre")]
