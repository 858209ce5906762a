"""What the coordinator makes of an approximate query's results; without sites."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from anabranch.approx.estimate import Estimator
from anabranch.approx.plan import EstimationPlan
from anabranch.connectors import Sink, SinkContext, make_sink
from anabranch.coordinator.approximate import windows
from anabranch.coordinator.approximate.models import FileStore, Models, ModelStore, PostgresStore
from anabranch.coordinator.approximate.results import ApproximateResults, Estimate, Result
from anabranch.coordinator.approximate.state import ApproximateState
from anabranch.errors import ConfigError, SinkError
from anabranch.plan.approximate import (
    approximate,
    dealt_out,
    key_text,
    located,
    replaced,
    with_workers,
    worker_queries,
    worker_query,
)
from anabranch.plan.catalog import Approximate, ApproximateDef, Once, QueryDef
from anabranch.plan.expressions import Expr, plain
from anabranch.plan.operators import (
    Aggregate,
    AggregateCall,
    Call,
    Column,
    Item,
    Node,
    Port,
    Projection,
)
from anabranch.plan.windows import TimePanes
from bench.systems.postgres import Postgres
from tests.connectors.reading import no_spark

WIDTH, SLIDE = 300, 100
KEYS = 8


def made(url: str = "postgresql://x", table: str = "results") -> ApproximateDef:
    aggregate = Aggregate(
        panes=TimePanes(width_us=WIDTH, slide_us=SLIDE),
        keys=(Item(expr=Expr.of("r", "k"), name="k", type="bigint"),),
        calls=(
            AggregateCall(
                function="AVG", arguments=(Expr.of("r", "x"),), name="_agg0", type="double"
            ),
        ),
    )
    projection = Projection(
        items=(
            Item(expr=Expr.of("", "k"), name="k", type="bigint"),
            Item(expr=Expr.of("", "_agg0"), name="x", type="double"),
            Item(expr=Expr.of("", "window_end"), name="window_end", type="timestamp"),
        )
    )
    columns = tuple(Column(name=item.name, type=item.type) for item in projection.items)
    node = Node(
        name="q",
        site="one",
        inputs=(Port(stream="r", alias="r"),),
        operators=(aggregate, projection),
        columns=columns,
    )
    query = QueryDef(
        name="q",
        columns=columns,
        site="one",
        written=node,
        nodes=(node,),
        sink=Call(name="postgres", options={"url": url, "table": table}),
    )
    asked = Approximate(epsilon=0.5, confidence=0.9, sites=("one", "two"))
    return approximate(query, asked, ("k",), "x", WIDTH, SLIDE)


def value(end: int, key: int) -> float:
    return 20 + 3 * math.sin(end / 2000) + key + 0.05 * math.sin(end * (key + 1.7))


def results(
    ends: range, worker: int, stream: str, keys: Iterable[int] = range(KEYS)
) -> list[Result]:
    return [
        Result(stream, end, (key,), value(end, key), False)
        for end in ends
        for key in keys
        if key % 2 == worker
    ]


def test_workers_filter_on_their_keys() -> None:
    one, two = worker_queries(made())
    assert (one.name, one.site, two.name, two.site) == ("q/1", "one", "q/2", "two")
    assert one.columns[-4:] == two.columns[-4:]
    selection = two.written.operators[0]
    assert selection.kind == "selection"
    assert (
        selection.condition.expr.sql(plain)
        == "pmod(hash(coalesce(CAST(`k` AS STRING), '')), 2) = 1"
    )


def test_an_assignment_lists_keys_and_leaves_the_rest_to_the_hash() -> None:
    assigned = made().model_copy(update={"assignment": (("a'b",), ("c",))})
    text = worker_query(assigned, 0).written.operators[0].condition.expr.sql(plain)  # type: ignore[union-attr]
    assert "IN ('a\\'b')" in text
    assert "NOT IN ('a\\'b', 'c')) AND (pmod(hash(" in text


def test_a_replacement_begins_with_a_whole_window() -> None:
    again = replaced(made(), 1, "one", since=900)
    query = worker_query(again, 1)
    assert (query.name, query.site) == ("q/2.2", "one")
    late = query.written.operators[2]
    assert late.kind == "selection"
    assert late.condition.expr.sql(plain) == "unix_micros(`window_end`) >= 900"
    assert worker_query(replaced(again, 1, "two", since=2000), 1).name == "q/2.3"


def learn(state: ApproximateState) -> None:
    lesson = state.lesson()
    state.adopt(lesson, lesson.plan(), len(lesson.history))


def learnt_state() -> ApproximateState:
    """60 whole windows, up to 6 000."""
    state = ApproximateState(made())
    ends = range(100, 6100, SLIDE)
    state.take(results(ends, 0, "q/1") + results(ends, 1, "q/2"))
    assert state.recovery.last_whole == 6000
    assert state.should_learn
    learn(state)
    assert state.estimable(0)
    assert state.estimable(1)
    return state


def test_damaged_windows_are_estimated_once_the_others_have_delivered() -> None:
    state = learnt_state()
    state.replaced(replaced(state.made, 1, "one", since=6400))
    assert state.recovery.damaged(1) == [6100, 6200, 6300]
    assert state.due() == []
    state.take(results(range(6100, 6400, SLIDE), 0, "q/1"))
    due = state.due()
    assert [(one.end, one.lag) for one in due] == [(6100, 1), (6200, 2), (6300, 3)]
    for one in due:
        estimates = state.estimate(one)
        assert [estimate.key for estimate in estimates] == [(1,), (3,), (5,), (7,)]
        for estimate in estimates:
            assert estimate.value == pytest.approx(value(one.end, estimate.key[0]), abs=0.3)
        state.wrote(one, len(estimates))
    assert not state.recovery.recovering
    more = range(6400, 6600, SLIDE)
    state.take(results(more, 0, "q/1") + results(more, 1, "q/2.2"))
    assert state.recovery.last_whole == 6500


def test_a_restarted_coordinator_finds_what_is_still_to_be_estimated() -> None:
    state = learnt_state()
    again = replaced(state.made, 1, "one", since=6400)
    ends = range(100, 6100, SLIDE)
    there = results(ends, 0, "q/1") + results(ends, 1, "q/2")
    there += results(range(6100, 6600, SLIDE), 0, "q/1")
    there += results(range(6400, 6600, SLIDE), 1, "q/2.2")
    there += [Result("q/estimated", 6100, (key,), value(6100, key), True) for key in (1, 3, 5, 7)]
    other = ApproximateState(again)
    other.take(sorted(there, key=lambda one: one.end))
    assert other.recovery.damaged(1) == [6200, 6300]
    learn(other)
    assert [(one.end, one.last) for one in other.due()] == [(6200, 6000), (6300, 6000)]


def by_key(ends: range, streams: dict[int, str]) -> list[Result]:
    """Key → the stream that delivers it."""
    return [
        Result(stream, end, (key,), value(end, key), False)
        for end in ends
        for key, stream in streams.items()
    ]


def test_keys_are_handed_over_without_a_gap() -> None:
    """Keys 0 and 1 change places from 6 400 on. Old and new queries both run for a while; of what
    both deliver, some rows are the one's and some the other's."""
    state = learnt_state()
    assignment = (("1", "2", "4", "6"), ("0", "3", "5", "7"))
    assert state.changed(assignment) == [0, 1]
    assert state.changed((("0", "2", "4", "6"), ("1", "3", "5", "7"))) == []
    then = dealt_out(state.made, assignment, [0, 1], 6400, windows=60)
    assert [worker.query for worker in then.workers] == ["q/1.2", "q/2.2"]
    assert then.leaving == ("q/1", "q/2")
    state.replaced(then)
    assert not state.estimable(0)
    before, after = range(6100, 6400, SLIDE), range(6400, 7000, SLIDE)
    old = {key: f"q/{key % 2 + 1}" for key in range(KEYS)}
    new = {key: "q/1.2" if str(key) in assignment[0] else "q/2.2" for key in range(KEYS)}
    mixed = {key: old[key] if key < 3 else new[key] for key in range(KEYS)}
    state.take(by_key(after, mixed))
    state.take(by_key(before, old) + by_key(after, mixed))
    assert state.recovery.last_whole == 6300
    assert state.due() == []
    state.dealt(then.model_copy(update={"leaving": ()}))
    state.take(by_key(before, old) + by_key(after, mixed))
    assert state.recovery.last_whole is not None
    assert state.recovery.last_whole >= 6800
    assert state.should_learn
    lesson = state.lesson()
    assert [[lesson.keys[key][0] for key in keys] for keys in lesson.workers] == [
        [1, 2, 4, 6],
        [0, 3, 5, 7],
    ]
    learn(state)
    state.found(1, dead=True)
    state.take(by_key(range(7000, 7100, SLIDE), dict.fromkeys((1, 2, 4, 6), "q/1.2")))
    (due,) = [one for one in state.due() if one.end == 7000]
    assert [one.key[0] for one in state.estimate(due)] == [0, 3, 5, 7]


def test_a_restarted_coordinator_knows_who_has_which_keys() -> None:
    """In the middle of it, and behind it."""
    assignment = (("1", "2", "4", "6"), ("0", "3", "5", "7"))
    then = dealt_out(made(), assignment, [0, 1], 6400, windows=60)
    old = {key: f"q/{key % 2 + 1}" for key in range(KEYS)}
    new = {key: "q/1.2" if str(key) in assignment[0] else "q/2.2" for key in range(KEYS)}
    there = by_key(range(100, 6400, SLIDE), old) + by_key(range(6400, 7000, SLIDE), new)
    middle = ApproximateState(then)
    middle.take(there)
    assert middle.recovery.last_whole == 6300
    behind = ApproximateState(then.model_copy(update={"leaving": ()}))
    behind.take(there)
    assert behind.recovery.last_whole == 6900
    assert behind.due() == []
    assert behind.lesson().workers == [[1, 2, 4, 6], [0, 3, 5, 7]]


def keys_estimated(state: ApproximateState, worker: int, end: int) -> list[int]:
    """Of a worker that dies, in the one window that the other has delivered behind it."""
    state.found(worker, dead=True)
    state.take(results(range(end, end + SLIDE, SLIDE), 1 - worker, f"q/{2 - worker}"))
    return [
        estimate.key[0] for one in state.due() for estimate in state.estimate(one) if one.end == end
    ]


def test_a_worker_with_a_new_key_is_not_estimated_until_that_is_learnt() -> None:
    state = learnt_state()
    more = [*range(KEYS), 9]
    late = range(6100, 8100, SLIDE)
    state.take(results(late, 0, "q/1") + results(late, 1, "q/2", more))
    state.refresh()
    assert (state.estimable(0), state.estimable(1)) == (True, False)
    assert state.wants_standby(1, has=False)
    assert state.report({}).workers[1].why == "1 key is new: 20 of 45 windows to learn from"
    assert not state.should_learn
    assert keys_estimated(state, 1, 8100) == []  # it waits

    later = range(8100, 10600, SLIDE)
    state.found(1, dead=False)
    state.take(results(later, 0, "q/1") + results(later, 1, "q/2", more))
    state.refresh()
    assert state.should_learn
    lesson = state.lesson()
    assert (9,) in lesson.keys
    assert len(lesson.history) == state.least  # not what was before the key came
    learn(state)
    assert not state.should_learn
    assert state.estimable(1)
    assert keys_estimated(state, 1, 10600) == [1, 3, 5, 7, 9]


def test_a_key_that_is_gone_is_not_estimated() -> None:
    state = learnt_state()
    late = range(6100, 6600, SLIDE)
    state.take(results(late, 0, "q/1") + results(late, 1, "q/2", (1, 5, 7)))
    state.refresh()
    assert state.estimable(1)
    assert keys_estimated(state, 1, 6600) == [1, 5, 7]
    state.found(1, dead=False)  # it comes back, and with it the key
    later = range(6600, 6700, SLIDE)
    state.take(results(later, 0, "q/1") + results(later, 1, "q/2"))
    assert keys_estimated(state, 1, 6700) == [1, 3, 5, 7]


def test_a_key_that_was_away_for_long_is_new() -> None:
    state = learnt_state()
    late = range(6100, 12100, SLIDE)
    state.take(results(late, 0, "q/1") + results(late, 1, "q/2", (1, 5, 7)))
    state.refresh()
    assert state.should_learn
    learn(state)
    later = range(12100, 12200, SLIDE)
    state.take(results(later, 0, "q/1") + results(later, 1, "q/2"))
    assert not state.estimable(1)
    assert "1 key is new" in state.report({}).workers[1].why


def test_one_model_is_inverted_once_for_all_windows_of_a_death(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[EstimationPlan] = []

    class Counted(Estimator):
        def __init__(self, plan: EstimationPlan) -> None:
            built.append(plan)
            super().__init__(plan)

    monkeypatch.setattr(windows, "Estimator", Counted)
    state = learnt_state()
    state.found(1, dead=True)
    for end in range(6100, 6600, SLIDE):
        state.take(results(range(end, end + SLIDE, SLIDE), 0, "q/1"))
        state.refresh()
        (one,) = state.due()
        state.wrote(one, len(state.estimate(one)))
    assert len(built) == 1


def test_a_worker_without_keys_keeps_nobody_from_learning() -> None:
    asked = made().asked.model_copy(update={"sites": ("one", "two", "three")})
    state = ApproximateState(with_workers(made().model_copy(update={"asked": asked})))
    ends = range(100, 10100, SLIDE)
    state.take(results(ends, 0, "q/1") + results(ends, 1, "q/2"))
    assert state.should_learn
    learn(state)
    assert [state.estimable(worker) for worker in range(3)] == [True, True, False]
    assert state.report({}).workers[2].why == "it has no keys"
    assert keys_estimated(state, 1, 10100) == [1, 3, 5, 7]


def test_a_worker_that_begins_late_is_learnt_from_all_that_it_delivers() -> None:
    state = ApproximateState(made())
    ends = range(100, 6100, SLIDE)
    state.take(results(ends, 0, "q/1"))
    learn(state)
    assert not state.estimable(1)
    late = results(range(100, 6200, SLIDE), 1, "q/2")
    state.take([one for one in late if one.end >= state.need_since(6000)])
    assert state.need_since(6000) == 0  # once more, for what it delivered before
    state.take(sorted(results(ends, 0, "q/1") + late, key=lambda one: one.end))
    assert state.need_since(6000) == 6000
    assert state.should_learn
    learn(state)
    assert len(state.lesson().history) == 60
    assert state.estimable(1)


def test_part_of_a_window_is_not_yet_delivered() -> None:
    state = learnt_state()
    part = results(range(6100, 6200, SLIDE), 0, "q/1")
    state.take(part[:2])
    state.take(results(range(6100, 6200, SLIDE), 1, "q/2"))
    assert state.recovery.last_whole == 6000
    state.take(part)
    assert state.recovery.last_whole == 6100


@pytest.fixture(params=["file", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], ModelStore]]:
    """Opens it anew each time."""
    if request.param == "file":
        yield lambda: FileStore(tmp_path / "models.duckdb")
    else:
        server: Postgres = request.getfixturevalue("postgres")
        yield lambda: PostgresStore(server.url)
        server.execute("DROP TABLE IF EXISTS anabranch_model")


def test_what_was_learnt_is_kept(store: Callable[[], ModelStore]) -> None:
    state = learnt_state()
    models = Models(store())
    assert models.newest("q") is None
    assert models.assignment("q", made().asked) == ()
    assert models.save("q", state.learnt()) == 1
    models.close()
    models = Models(store())
    found = models.newest("q")
    assert found
    other = ApproximateState(state.made)
    other.go_on_with(found)
    assert other.plan
    assert state.plan
    assert other.plan.estimable == state.plan.estimable == [True, True]
    assert (other.plan.model.precision == state.plan.model.precision).all()
    one, two = models.assignment("q", made().asked)
    assert sorted([*one, *two]) == [str(key) for key in range(KEYS)]
    assert models.save("q", state.learnt()) == 2
    assert models.newest("other") is None
    models.close()


def test_a_database_that_is_not_there_is_named() -> None:
    models = Models(PostgresStore("postgresql://nobody@127.0.0.1:1/models"))
    with pytest.raises(SinkError, match=r"models in 127\.0\.0\.1:1/models"):
        models.newest("q")


def test_a_worker_that_cannot_be_estimated_wants_a_standby() -> None:
    state = learnt_state()
    assert not state.wants_standby(0, has=False)
    more = range(6100, 7100, SLIDE)
    wild = [
        one._replace(value=one.value + 9 * (one.end // SLIDE % 2)) if one.key == (3,) else one
        for one in results(more, 1, "q/2")
    ]
    state.take(results(more, 0, "q/1") + wild)
    state.refresh()
    assert state.wants_standby(1, has=False)
    assert not state.estimable(1)
    reported = state.report({1: "three"}).workers
    assert [one.protection for one in reported] == ["estimates", "standby at three"]
    assert reported[1].why.startswith("its keys have changed")
    assert state.report({1: None}).workers[1].protection.startswith("restart point, until")
    # as it was, for long enough
    calm = range(7100, 12000, SLIDE)
    state.take(results(calm, 0, "q/1") + results(calm, 1, "q/2"))
    state.refresh()
    assert state.estimable(1)
    assert not state.wants_standby(1, has=True)


def test_a_standby_stays_until_estimates_held_for_a_while() -> None:
    state = learnt_state()
    state.calm[1] = 0
    assert state.wants_standby(1, has=True)
    assert not state.wants_standby(1, has=False)


def test_workers_are_where_their_queries_are() -> None:
    known = {query.name: query for query in worker_queries(made())}
    known["q/2"] = known["q/2"].model_copy(update={"site": "three"})
    assert [worker.site for worker in located(made(), known).workers] == ["one", "three"]
    assert [worker.site for worker in located(made(), {}).workers] == ["one", "two"]


SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("window_end", pa.timestamp("us", "UTC")),
        ("estimated", pa.bool_()),
        ("lower", pa.float64()),
        ("upper", pa.float64()),
        ("confidence", pa.float64()),
        ("_pos", pa.int64()),
        ("_ts", pa.int64()),
    ]
)


@pytest.fixture
def query(postgres: Postgres) -> Iterator[ApproximateDef]:
    """Of two keys."""
    name = f"results_{uuid4().hex[:8]}"
    yield made(postgres.url, name).model_copy(update={"keys": ("k", "n")})
    postgres.execute(f"DROP TABLE IF EXISTS {name}")


Make = Callable[..., Sink]


@pytest.fixture
def worker() -> Iterator[Make]:
    """The sink of a worker of a query, open."""
    sinks: list[Sink] = []

    def make(query: ApproximateDef, number: int = 1) -> Sink:
        stream = f"{query.name}/{number}"
        once = Once(query=query.name, keys=query.keys)
        context = SinkContext(stream, SCHEMA, query.sink.options, Path(), no_spark, "r1", once=once)
        sinks.append(make_sink("postgres", context))
        sinks[-1].open()
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


def exact(first: int, *rows: tuple[Any, int, float]) -> pa.Table:
    """Of the window that ends at 100."""
    values = [
        {"k": k, "n": n, "x": x, "estimated": False, "_pos": first + i, "_ts": 100}
        for i, (k, n, x) in enumerate(rows)
    ]
    return pa.Table.from_pylist(values, SCHEMA)


def there(results: ApproximateResults) -> set[tuple[Any, ...]]:
    return {(one.key, one.value, one.estimated) for one in results.since(0)}


def test_an_exact_value_replaces_an_estimate_and_never_the_other_way_round(
    query: ApproximateDef, worker: Make
) -> None:
    """A worker that was only slow delivers after it was taken for dead."""
    table = ApproximateResults(query)
    assert not table.guard()
    slow = worker(query)
    assert table.guard()
    slow.write(exact(1, ("a", 1, 5.0)))
    estimates = [Estimate(("a", 1), 7.0, 0.5), Estimate(("b", 1), 8.0, 0.5)]
    assert table.write(100, estimates) == 1
    assert table.write(100, [Estimate(("b", 1), 9.0, 0.5)]) == 0
    assert there(table) == {(("a", 1), 5.0, False), (("b", 1), 8.0, True)}
    slow.write(exact(2, ("b", 1, 8.1), ("c", 1, 1.0)))
    assert table.write(100, estimates) == 0
    found = there(table)
    assert found == {(("a", 1), 5.0, False), (("b", 1), 8.1, False), (("c", 1), 1.0, False)}
    twin = worker(query, 2)  # two have it exactly: the first one stays
    twin.write(exact(1, ("b", 1, 8.2)))
    assert there(table) == found
    assert {one.stream for one in table.since(0)} == {"q/1"}


def test_null_is_one_key_like_any_other(query: ApproximateDef, worker: Make) -> None:
    assert key_text((None, 1)) == "\x1f1"
    table = ApproximateResults(query)
    sink = worker(query)
    assert table.guard()
    assert table.write(100, [Estimate((None, 1), 7.0, 0.5), Estimate(("", 1), 8.0, 0.5)]) == 2
    assert table.write(100, [Estimate((None, 1), 9.0, 0.5)]) == 0
    sink.write(exact(1, (None, 1, 7.1)))
    assert there(table) == {((None, 1), 7.1, False), (("", 1), 8.0, True)}


def test_each_table_and_query_has_an_index_of_its_own(
    query: ApproximateDef, postgres: Postgres, worker: Make
) -> None:
    other = query.model_copy(update={"template": made(postgres.url, f"{_table(query)}2").template})
    for one in (query, other):
        table = ApproximateResults(one)
        worker(one)
        assert table.guard()
        assert table.guard()
        assert table.write(100, [Estimate(("a", 1), 7.0, 0.5)]) == 1
        assert table.write(100, [Estimate(("a", 1), 7.0, 0.5)]) == 0
    postgres.execute(f"DROP TABLE {_table(other)}")


def test_an_index_that_does_not_what_it_should_is_found(
    query: ApproximateDef, postgres: Postgres, worker: Make
) -> None:
    table = ApproximateResults(query)
    worker(query)
    name = table._once.name
    postgres.execute(f"DROP INDEX {name}")
    postgres.execute(f"CREATE INDEX {name} ON {_table(query)} (_ts, k, n)")
    with pytest.raises(SinkError, match="does not keep a window of a key from being there twice"):
        table.guard()


def test_rows_of_an_earlier_query_go_only_when_told_to(query: ApproximateDef, worker: Make) -> None:
    table = ApproximateResults(query)
    table.check_anew()
    worker(query).write(exact(1, ("a", 1, 5.0)))
    with pytest.raises(ConfigError, match="which holds 1 row of an earlier query q"):
        table.check_anew()
    table.clear()
    assert len(there(table)) == 1
    told = query.template.model_copy(
        update={"sink": query.sink.model_copy(update={"options": query.sink.options | MODE})}
    )
    anew = ApproximateResults(query.model_copy(update={"template": told}))
    anew.check_anew()
    anew.clear()
    assert there(table) == set()


MODE = {"mode": "replace"}


def _table(query: ApproximateDef) -> str:
    return str(query.sink.options["table"])
