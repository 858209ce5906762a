"""What a JVM takes besides its heap: made-up sizes, and a real JVM that loads classes."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from anabranch.spark.memory import Footprint, JobMemory, besides_heap, footprint


class Jvm:
    """What it takes, and the time, are what one says."""

    def __init__(self) -> None:
        self.size, self.time, self.looks = 300, 0.0, 0
        self.footprint = Footprint(lambda: self.time)

    def taken(self) -> int:
        self.looks += 1
        return self.size

    def excess(self, size: int, after_s: float = 1.0) -> int:
        self.size = size
        self.time += after_s
        self.footprint.look()
        return self.footprint.excess()


def test_a_cold_jvm_never_takes_too_much() -> None:
    assert Jvm().excess(10**12) == 0


def test_all_beyond_what_a_warm_one_had_is_excess() -> None:
    jvm = Jvm()
    jvm.footprint.warm(jvm.taken)
    assert [jvm.excess(size) for size in (300, 330, 350, 320, 250)] == [0, 30, 50, 20, 0]


def test_another_jvm_is_another_beginning() -> None:
    jvm = Jvm()
    jvm.footprint.warm(jvm.taken)
    assert jvm.excess(1000) == 700
    jvm.footprint.warm(jvm.taken)
    assert jvm.footprint.excess() == 0
    assert jvm.excess(1010) == 10


def test_it_looks_no_more_than_once_a_second() -> None:
    jvm = Jvm()
    jvm.footprint.warm(jvm.taken)
    for _ in range(100):
        jvm.excess(300, after_s=0.1)
    assert 10 <= jvm.looks <= 12


def test_a_real_jvm_takes_memory_for_code_and_classes(spark: SparkSession) -> None:
    factory = spark.sparkContext._jvm.java.lang.management.ManagementFactory
    pools = {pool.getName(): pool for pool in factory.getMemoryPoolMXBeans()}
    besides = [
        pool.getUsage().getCommitted()
        for name, pool in pools.items()
        if name.startswith(("Code", "Metaspace", "Compressed Class"))
    ]
    assert 3 <= len(besides) < len(pools)
    assert besides_heap(spark)() == pytest.approx(sum(besides), rel=0.05)
    assert sum(besides) > 20_000_000


def test_it_looks_behind_a_job_that_succeeded(spark: SparkSession) -> None:
    looks = []
    footprint.warm(lambda: looks.append(None) or 0)
    try:
        footprint._looked = 0
        with JobMemory().job(1):
            assert len(looks) == 1  # that of `warm`
        assert len(looks) == 2
    finally:
        footprint.warm(besides_heap(spark))
