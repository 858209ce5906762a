"""What is started within `with cluster.script():` sees its inputs from the first tuple on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch import Cluster, Pocket, join, source
from anabranch.errors import ScriptError

ROWS = 3000


class Doubled(Pocket):
    query = "s"
    output = "CREATE STREAM twice (m BIGINT)"
    stateless = True

    def row(self, row: dict[str, Any]) -> tuple[int]:
        return (2 * row["n"],)


def test_all_that_is_started_together_sees_the_first_tuple(cluster: Cluster) -> None:
    s = cluster.stream(
        "s", {"n": "BIGINT"}, at="room1", source=source("rate", tps=1_000_000, rows=ROWS, n="value")
    )
    with cluster.script():
        even = s.where("n % 2 = 0").start("even")
        same = join(even["1us"], s["1us"]).where("even.n = s.n").select(n="s.n").start("same")
        twice = cluster.submit(Doubled)
        assert cluster.status()["reads"] == {}
    assert [row["n"] for row in even.rows()] == list(range(0, ROWS, 2))
    assert [row["n"] for row in same.rows()] == list(range(0, ROWS, 2))
    assert [row["m"] for row in twice.rows()] == [2 * n for n in range(ROWS)]
    assert (even.site, twice.site, twice.input) == ("room1", "room1", "s")


def test_if_one_is_wrong_none_is_started(cluster: Cluster) -> None:
    s = cluster.stream("s", {"n": "BIGINT"}, at="room1", source=source("rate", tps=10, n="value"))
    with pytest.raises(ScriptError) as caught, cluster.script():  # noqa: PT012
        s.start("all", follow=False)
        s.where("m > 1").start("wrong", follow=False)
    assert caught.value.place == "where"
    assert "unknown column 'm'" in caught.value.message
    assert cluster.status()["reads"] == {}
    s.start("all", follow=False)  # as if nothing had been


def test_what_raises_within_starts_nothing(cluster: Cluster, tmp_path: Path) -> None:
    s = cluster.stream("s", {"n": "BIGINT"}, at="room1", source=source("rate", tps=10, n="value"))
    with pytest.raises(ZeroDivisionError), cluster.script():  # noqa: PT012
        s.start("all", follow=False)
        _ = 1 / 0
    assert cluster.status()["reads"] == {}
