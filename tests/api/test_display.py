"""What a notebook and Python's prompt show."""

from __future__ import annotations

import pyarrow as pa

from anabranch.api.cluster import Cluster
from anabranch.api.relations import Stream
from anabranch.api.results import Answers, Results
from anabranch.coordinator.base.reports import QueryState, SystemStatus
from anabranch.coordinator.scripts.replies import Answer
from anabranch.errors import SiteError
from tests.cli.statuses import down, site, status, task

CREATED = Answer("line", "query q created at centre")
SITES = Answer("table", columns=("site", "state"), rows=(("room1", "up"), ("<b>", "away")))


def test_answers_are_readable() -> None:
    assert repr(Answers([CREATED, SITES])) == (
        "query q created at centre\nsite   state\nroom1  up\n<b>    away"
    )
    html = Answers([CREATED, SITES])._repr_html_()
    assert "<pre>query q created at centre</pre>" in html
    assert "<td>&lt;b&gt;</td><td>away</td>" in html


class FakeClient:
    def execute(self, statement: object) -> Answer:
        return Answer("table", columns=("column", "type"), rows=(("x", "array<int>"),))


def test_a_relation_shows_its_columns() -> None:
    stream = Stream(FakeClient(), "a<b", "room1")  # type: ignore[arg-type]
    assert repr(stream) == "<stream a<b at room1>"
    html = stream._repr_html_()
    assert "&lt;stream a&lt;b at room1&gt;" in html
    assert "<td>x</td><td>array&lt;int&gt;</td>" in html


class Stands:
    """A client of a system that is as it says, or away."""

    def __init__(self, error: SiteError | None = None) -> None:
        self.error = error

    def status(self) -> SystemStatus:
        if self.error:
            raise self.error
        told = {"q<": QueryState("waiting", "site b is starting")}
        return status(site("a", task("q<", "a")), down("b"), states=told)


def test_a_cluster_shows_how_it_stands() -> None:
    cluster = Cluster(Stands())  # type: ignore[arg-type]
    assert repr(cluster) == "<cluster of a (up), b (unreachable); queries: q<>"
    html = cluster._repr_html_()
    assert "<td>a</td><td>up</td>" in html
    assert "<td>q&lt;</td><td>a</td><td>waiting</td><td>10</td><td>site b is starting</td>" in html
    away = Cluster(Stands(SiteError("nobody <there>")))  # type: ignore[arg-type]
    assert repr(away) == "<cluster that does not answer: nobody <there>>"
    assert "nobody &lt;there&gt;" in away._repr_html_()


class Read:
    """A reader whose stream has ended behind two batches."""

    def __init__(self) -> None:
        schema = pa.schema({"x": pa.int64(), "_pos": pa.int64(), "_ts": pa.int64()})
        rows = [[1, 1, 0], [2, 2, 1_000_000]]
        self.batches = [
            pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True))], schema)
            for row in rows
        ]
        self.schema = schema

    def next(self, timeout_s: float) -> pa.RecordBatch | None:
        return self.batches.pop(0) if self.batches else None

    def wait_for_schema(self, timeout_s: float) -> pa.Schema:
        return self.schema


def results() -> Results:
    found = Results()
    found._reader = Read()  # type: ignore[assignment]
    return found


def test_asking_twice_gives_the_same() -> None:
    found = results()
    once = found.to_pandas()
    assert list(once["x"]) == [1, 2]
    assert found.to_pandas().equals(once)


def test_part_by_part_goes_on_where_it_was() -> None:
    found = results()
    assert [len(found.to_arrow(limit=1)) for _ in range(3)] == [1, 1, 0]


def test_event_times_as_timestamps() -> None:
    times = results().to_pandas(timestamps=True)["_ts"]
    assert [str(time) for time in times] == [
        "1970-01-01 00:00:00+00:00",
        "1970-01-01 00:00:01+00:00",
    ]
