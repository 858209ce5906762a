"""What a task costs and how fast it is, from what its instances report."""

from __future__ import annotations

import random
import sys
import threading

import numpy as np
import pytest

from anabranch.site.tasks.measures import CostModel, InstanceCost, Measures, Rate


@pytest.mark.parametrize(("fixed", "per_tuple"), [(0.03, 2e-6), (0.0, 1e-5), (0.05, 0.0)])
def test_the_cost_model_recovers_both_parts(fixed: float, per_tuple: float) -> None:
    rng = random.Random(1)
    model = CostModel()
    for _ in range(200):
        rows = rng.randrange(1, 20_000)
        model.add(0.0, rows, fixed + per_tuple * rows)
    cost = model.cost()
    assert cost.fixed == pytest.approx(fixed, abs=1e-6)
    assert cost.per_tuple == pytest.approx(per_tuple, abs=1e-9)


def test_it_recovers_them_from_noise_and_forgets_the_cold_start() -> None:
    rng = random.Random(2)
    model = CostModel()
    for _ in range(20):
        model.add(0.0, 1_000, 4.0)
    for _ in range(1_000):
        rows = rng.randrange(1, 20_000)
        model.add(0.0, rows, (0.03 + 2e-6 * rows) * rng.uniform(0.9, 1.1))
    cost = model.cost()
    assert cost.fixed == pytest.approx(0.03, rel=0.1)
    assert cost.per_tuple == pytest.approx(2e-6, rel=0.1)


def test_a_slow_machine_is_not_blamed_on_the_tuples() -> None:
    """Whoever was slow finds more tuples the next time; and slow times last."""
    rng = random.Random(3)
    model, slow, seconds = CostModel(), 1.0, 0.05
    pairs = []
    for _ in range(128):
        slow = rng.choice([1.0, 3.0]) if rng.random() < 0.3 else slow
        rows = max(1, round(1_000 * seconds))
        seconds = slow * (0.05 + 1e-5 * rows)
        pairs.append((rows, seconds))
        model.add(0.0, rows, seconds)
    least_squares, _ = np.polyfit(*np.array(pairs).T, 1)
    assert least_squares > 5e-4
    assert model.cost().per_tuple < 1e-4


def test_one_batch_size_alone_is_all_fixed() -> None:
    model = CostModel()
    assert model.cost() == InstanceCost(0.0, 0.0)
    for _ in range(10):
        model.add(0.0, 500, 0.04)
    assert model.cost() == InstanceCost(pytest.approx(0.04), 0.0)


def test_what_was_fixed_long_ago_does_not_count_if_there_is_news() -> None:
    model = CostModel()
    for second in range(30):
        model.add(float(second), 1, 0.4 - 0.01 * second)
    assert model.cost().fixed == pytest.approx(0.13)  # of five: 25 to 29
    model.add(60.0, 1, 0.05)
    assert model.cost().fixed == pytest.approx((0.13 + 0.12 + 0.11 + 0.05) / 4 - 0.0)


def test_no_part_is_ever_negative() -> None:
    falling, steep = CostModel(), CostModel()
    for rows, seconds in ((10, 0.5), (1_000, 0.1)):
        falling.add(0.0, rows, seconds)
    for rows, seconds in ((10, 0.0001), (1_000, 1.0), (2_000, 3.0)):
        steep.add(0.0, rows, seconds)
    for cost in (falling.cost(), steep.cost()):
        assert cost.fixed >= 0
        assert cost.per_tuple >= 0


def test_a_rate_counts_the_last_seconds() -> None:
    rate = Rate(window_s=5)
    assert rate.per_second(0.0) == 0.0
    for second in range(20):
        rate.add(float(second), 100)
    assert rate.per_second(19.0) == pytest.approx(100, rel=0.25)
    assert rate.per_second(100.0) == 0.0


def test_a_rate_is_not_infinite_at_the_beginning() -> None:
    rate = Rate()
    rate.add(7.0, 50)
    assert rate.per_second(7.0) == 50


def test_a_rate_may_be_asked_for_while_it_counts() -> None:
    """A status must not fail because a tuple came."""
    rate = Rate(window_s=1e9)
    done = threading.Event()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def count() -> None:
        for second in range(20_000):
            rate.add(float(second), 1)
        done.set()

    thread = threading.Thread(target=count)
    try:
        thread.start()
        while not done.is_set():
            rate.per_second(1.0)
    finally:
        sys.setswitchinterval(before)
        thread.join()
    assert rate.per_second(20_000.0) > 0


def test_a_slow_minute_is_not_shown_for_ten() -> None:
    measures = Measures()
    measures.add(0.0, 10, 300, 0.02, np.full(300, 200.0))
    for second in range(50, 62, 4):
        measures.add(float(second), 10, 30, 0.02, np.full(30, 0.5))
    assert measures.report(62.0)["p99_ms"] == 200_000 == measures.report(62.0)["p50_ms"]
    measures.add(62.0, 10, 30, 0.02, np.full(30, 0.5))
    assert measures.report(62.0)["p99_ms"] == 500
    assert len(measures.latencies()) == 420


def test_few_results_are_shown_however_old() -> None:
    measures = Measures()
    for minute in range(10):
        measures.add(60.0 * minute, 10, 1, 0.02, np.array([float(minute)]))
    assert measures.report(600.0)["p50_ms"] == 4_500


def test_percentiles_are_those_of_the_recent_latencies() -> None:
    measures = Measures()
    assert (measures.report(0.0)["p50_ms"], measures.report(0.0)["p99_ms"]) == (None, None)
    for _ in range(5):
        measures.add(0.0, 10, 5, 0.02, np.full(1_000, 9.0))
    latencies = np.arange(1, 2_049) / 1_000
    measures.add(1.0, 10, 2_048, 0.02, latencies)
    report = measures.report(1.0)
    assert report["p50_ms"] == pytest.approx(np.percentile(latencies, 50) * 1e3)
    assert report["p99_ms"] == pytest.approx(np.percentile(latencies, 99) * 1e3)
    assert (report["instances"], report["rows_in"], report["rows_out"]) == (6, 60, 25 + 2_048)
    assert report["fixed_ms"] == pytest.approx(20)


def test_what_comes_out_at_the_end_of_input_is_counted() -> None:
    """An instance that takes nothing but the end puts out all open windows."""
    measures = Measures()
    measures.add(1.0, 100, 0, 0.5, np.array([]))
    measures.add(2.0, 0, 5_004, 0.1, np.array([]))
    report = measures.report(2.0)
    assert (report["instances"], report["rows_in"], report["rows_out"]) == (1, 100, 5_004)
    assert report["fixed_ms"] == pytest.approx(500)


def test_what_handling_takes_is_part_of_the_cost() -> None:
    measures = Measures()
    for _ in range(20):
        measures.add(0.0, 1, 1, 0.002, np.array([]))
        measures.add_handling(0.0005)
    assert measures.cost().fixed == pytest.approx(0.0025)
    measures.add_handling(1.0)  # the machine was elsewhere
    assert measures.usual_s() < 0.0027
