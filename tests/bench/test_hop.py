"""The hop that `bench hop` measures is a whole one: results come, and acks go back."""

from __future__ import annotations

import os
from typing import Literal

import pytest
from pyspark.sql import SparkSession

from anabranch.link.gate import Credentials
from anabranch.link.messages import Ping
from anabranch.link.peer import Peer
from bench.hops.hop import Hop, bare_seconds, compare, tuples
from tests.link.support import eventually

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("plans", ["kept", "job"])
def test_what_has_passed_the_hop_is_released_at_its_source(
    spark: SparkSession, plans: Literal["kept", "job"]
) -> None:
    table = tuples(1000)
    hop = Hop(spark, plans)
    try:
        for rounds in (1, 2):
            assert hop.seconds(table) > 0
            eventually(lambda last=1000 * rounds: hop.source.released == last)
        # The site measures its round trips to it, as to any other.
        assert Peer("edge", hop.edge.address, Credentials("bench")).send(Ping()).pid == os.getpid()
    finally:
        hop.close()
    assert bare_seconds(spark, table) > 0


def test_what_is_written_holds_all_ratios(spark: SparkSession) -> None:
    result = compare(spark, lambda text: None, rounds=2, bulk_rounds=1)
    sizes = {row["tuples"]: row for row in result["rows"]}
    assert list(sizes) == [1, 1_000, 100_000, 1_000_000]
    small, large = sizes[1_000], sizes[1_000_000]
    assert result["latency_ratio"] == small["kept"]["ms"] / small["bare"]["ms"]
    assert result["throughput_ratio"] == large["bare"]["ms"] / large["kept"]["ms"]
    assert all(row[way]["ms"] > 0 for row in sizes.values() for way in ("kept", "job", "bare"))
