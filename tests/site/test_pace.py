"""A source read as fast as possible waits for what becomes of its tuples, but not for ever."""

from __future__ import annotations

import threading
import time

import pyarrow as pa
import pytest

from anabranch.link.inlet import Budget
from anabranch.link.outlet import LiveOutlet
from anabranch.link.wire import ArrowBatches
from anabranch.site.sources import pace as module
from anabranch.site.sources.pace import Pace
from anabranch.stream.restart import RestartPoint
from tests.link.support import LOOP

ROWS = pa.record_batch({"n": list(range(100))})


@pytest.fixture
def outlet() -> LiveOutlet:
    """Keeps three batches for one consumer, which has been sent all of them."""
    outlet = LiveOutlet(LOOP, "s", ArrowBatches(ROWS.schema), limit=1 << 30, heartbeat_s=0.01)
    outlet.attach("c")
    outlet.append([ROWS, ROWS, ROWS], 0)
    return outlet


def paced(outlet: LiveOutlet, batches: int, used: int = 0) -> Pace:
    budget = Budget(LOOP, batches * ROWS.nbytes)
    budget.use(used)
    return Pace(outlet, budget)


def waits(pace: Pace, seconds: float = 0.1) -> bool:
    """Whether it still waits after a while; then it is stopped."""
    stopped = threading.Event()
    thread = threading.Thread(target=pace.wait, args=(stopped,))
    thread.start()
    thread.join(seconds)
    waited = thread.is_alive()
    stopped.set()
    thread.join(5)
    assert not thread.is_alive()
    return waited


def test_below_the_limit_nothing_waits(outlet: LiveOutlet) -> None:
    assert not waits(paced(outlet, 4))


def test_a_source_waits_until_tuples_are_released(outlet: LiveOutlet) -> None:
    pace = paced(outlet, 2)
    assert waits(pace)
    outlet.level1("c", 200, RestartPoint((200,), 0))
    assert not waits(pace)


def test_where_memory_is_short_it_runs_less_far_ahead_down_to_a_half(outlet: LiveOutlet) -> None:
    excess = 0
    budget = Budget(LOOP, 6 * ROWS.nbytes)
    pace = Pace(outlet, budget, lambda: excess)
    outlet.append([ROWS], 0)
    assert not waits(pace)
    excess = 2 * ROWS.nbytes
    assert waits(pace)
    outlet.level1("c", 200, RestartPoint((200,), 0))
    excess = 10**12
    assert not waits(pace)  # 2 kept, fewer than half of 6
    outlet.append([ROWS], 0)
    assert waits(pace)


def test_at_rest_more_may_follow(outlet: LiveOutlet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What windows hold is released only by what follows."""
    monkeypatch.setattr(module, "REST_S", 0.02)
    pace = paced(outlet, 2)
    assert not waits(pace, 5)
    outlet.append([ROWS] * 4, 0)
    assert not waits(pace, 0.1)  # 7 kept, fewer than 2 + 2 × 3
    outlet.append([ROWS], 0)
    started = time.monotonic()
    pace.wait(threading.Event())
    assert time.monotonic() - started > 0.02


def test_what_was_released_after_all_is_no_longer_needed(
    outlet: LiveOutlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST_S", 0.02)
    pace = paced(outlet, 2)
    assert not waits(pace, 5)
    monkeypatch.undo()
    outlet.level1("c", 300, RestartPoint((300,), 0))
    assert not waits(pace)
    outlet.append([ROWS] * 3, 0)
    assert waits(pace)


def test_while_something_runs_it_is_not_at_rest(
    outlet: LiveOutlet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "REST_S", 0.02)
    assert waits(paced(outlet, 2, used=1), 0.3)
    monkeypatch.setattr(module, "PATIENCE_S", 0.02)
    assert not waits(paced(outlet, 2, used=1), 5)
