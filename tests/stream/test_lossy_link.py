"""An outlet and its inlets joined by bad links, and proof that this can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from anabranch.errors import Gap
from anabranch.stream.batch import Batch
from anabranch.stream.inlet import Inlet
from anabranch.stream.outlet import Outlet
from tests.stream.lossy_link import LossyLink, drive

ALL_HEALTH = list(HealthCheck)
SOUND = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=ALL_HEALTH,
)
SEEDS = range(30)
STEPS = 150


def test_every_consumer_takes_every_tuple_once_and_all_is_released() -> None:
    """Positions are dense, and receivers drop duplicates by position. An outlet keeps what may
    still be needed and releases on Level-1 acks alone."""
    run_state_machine_as_test(LossyLink, settings=SOUND)


def drive_all() -> None:
    for seed in SEEDS:
        drive(seed, STEPS)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_long_run(seed: int) -> None:
    """The same in long runs, in which little goes wrong at a time."""
    drive(seed, STEPS)


def release_what_the_fastest_has(outlet: Outlet[Any]) -> None:
    floor = max((one.released for one in outlet.consumers.values()), default=outlet.last)
    keep = [batch for batch in outlet._kept if batch.last > floor]
    gone = len(outlet._kept) - len(keep)
    if gone:
        outlet._released_bytes = outlet._ends[gone - 1]
        del outlet._kept[:gone], outlet._lasts[:gone], outlet._ends[:gone]
    outlet.released = max(outlet.released, floor)


def release_what_was_received(outlet: Outlet[Any], *ack: Any) -> int:
    known = outlet.consumers[ack[0]]
    known.released, known.restart = known.received, ack[2]
    outlet._release()
    return outlet.released


def level1_in_any_order(outlet: Outlet[Any], consumer: str, position: int, point: Any) -> int:
    known = outlet.consumers[consumer]
    known.released, known.restart = position, point
    outlet._release()
    return outlet.released


def never_release(outlet: Outlet[Any]) -> None:
    return None


def keep_duplicates(inlet: Inlet[Any], batch: Batch[Any]) -> int:
    if batch.rows:
        inlet._waiting.append(batch)
        inlet.waiting_bytes += batch.data.nbytes
        inlet.received = max(inlet.received, batch.last)
    inlet._newest_watermark = max(inlet._newest_watermark, batch.watermark)
    return int(batch.rows)


def forget_watermarks_of_duplicates(inlet: Inlet[Any], batch: Batch[Any]) -> int:
    return ORIGINAL_OFFER(inlet, batch) if batch.last > inlet.received else 0


def newest_watermark_at_once(inlet: Inlet[Any], *limits: int) -> Any:
    taken = ORIGINAL_TAKE(inlet, *limits)
    inlet.watermark = inlet._newest_watermark
    return taken


def head_with_its_batch_watermark(batch: Batch[Any], rows: int, watermark: int) -> Batch[Any]:
    return ORIGINAL_HEAD(batch, rows, batch.watermark)


def after_one_too_many(batch: Batch[Any], position: int) -> Batch[Any]:
    return ORIGINAL_AFTER(batch, position + 1)


def read_from_released(outlet: Outlet[Any], after: int) -> Any:
    return ORIGINAL_READ(outlet, max(after, outlet.released + 1))


ORIGINAL_OFFER, ORIGINAL_TAKE = Inlet.offer, Inlet.take
ORIGINAL_HEAD, ORIGINAL_AFTER, ORIGINAL_READ = Batch.head, Batch.after, Outlet.read

MUTANTS: list[tuple[type, str, Callable[..., Any]]] = [
    (Outlet, "_release", release_what_the_fastest_has),
    (Outlet, "_release", never_release),
    (Outlet, "level1", release_what_was_received),
    (Outlet, "level1", level1_in_any_order),
    (Outlet, "read", read_from_released),
    (Inlet, "offer", keep_duplicates),
    (Inlet, "offer", forget_watermarks_of_duplicates),
    (Inlet, "take", newest_watermark_at_once),
    (Batch, "head", head_with_its_batch_watermark),
    (Batch, "after", after_one_too_many),
]


@pytest.mark.parametrize(
    ("owner", "name", "mutant"), MUTANTS, ids=[mutant.__name__ for *_, mutant in MUTANTS]
)
def test_a_wrong_implementation_is_caught(
    owner: type, name: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, mutant)
    with pytest.raises((AssertionError, Gap)):
        drive_all()
