"""Emulated links: slower, in order, and honest about errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from anabranch.errors import SiteError
from anabranch.link import emulation
from anabranch.link.emulation import Emulation, slowed
from anabranch.stream.batch import Batch
from tests.link.support import eventually, numbers, values


def batches(count: int) -> Iterator[Batch]:
    return (Batch("S", n, n, 0, numbers(n, 1)) for n in range(1, count + 1))


def timed(source: Iterator[Batch], link: Emulation) -> tuple[list[int], float]:
    started = time.monotonic()
    got = values(slowed(source, link, threading.Event()))
    return got, time.monotonic() - started


def test_order_is_kept_under_jitter() -> None:
    got, _ = timed(batches(300), Emulation(delay_s=0.001, jitter_s=0.05))
    assert got == list(range(1, 301))


def test_many_travel_at_a_time() -> None:
    got, took = timed(batches(50), Emulation(delay_s=0.1))
    assert got == list(range(1, 51))
    assert 0.1 <= took < 0.6


def test_bandwidth_is_what_one_batch_after_the_other_occupies() -> None:
    got, took = timed(batches(20), Emulation(bytes_per_s=20 * 24 / 0.2))
    assert len(got) == 20
    assert 0.2 <= took < 0.8


def test_an_error_comes_after_what_was_under_way() -> None:
    def broken() -> Iterator[Batch]:
        yield from batches(3)
        raise SiteError("room1 is unreachable")

    arriving = slowed(broken(), Emulation(delay_s=0.02), threading.Event())
    assert values(next(arriving) for _ in range(3)) == [1, 2, 3]
    with pytest.raises(SiteError, match="room1"):
        next(arriving)


def test_stopping_ends_it_even_when_nothing_comes() -> None:
    stopped = threading.Event()
    came = threading.Event()

    def silent() -> Iterator[Batch]:
        yield from batches(1)
        came.set()
        stopped.wait()

    threading.Timer(0.05, stopped.set).start()
    got = values(slowed(silent(), Emulation(delay_s=0.001), stopped))
    assert came.is_set()
    assert got == [1]


def test_a_cancelled_stream_ends_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes over waits for it."""
    monkeypatch.setattr(emulation, "_LOOK_S", 60.0)
    stopped = threading.Event()

    def cancelled() -> Iterator[Batch]:
        yield from batches(1)
        stopped.wait()
        raise SiteError("cancelled")

    got: list[int] = []
    arriving = slowed(cancelled(), Emulation(delay_s=0.001), stopped)
    reader = threading.Thread(target=lambda: got.extend(values(arriving)), daemon=True)
    reader.start()
    threading.Timer(0.05, stopped.set).start()
    reader.join(10)
    assert not reader.is_alive()
    assert got == [1]


def sent_to_nobody(stopped: threading.Event) -> tuple[Iterator[Batch], list[int]]:
    """Large batches over a link whose other end takes only the first; and those that were sent."""
    sent: list[int] = []

    def large() -> Iterator[Batch]:
        for n in range(1, 101):
            sent.append(n)
            yield Batch("S", 1 + 100_000 * (n - 1), n, 0, numbers(n, 100_000))

    arriving = slowed(large(), Emulation(delay_s=0.001), stopped)
    next(arriving)
    return arriving, sent


def test_no_more_is_under_way_than_fits() -> None:
    """However many batches that is: what is sent, others take for delivered."""
    stopped = threading.Event()
    arriving, sent = sent_to_nobody(stopped)
    fits = emulation.FLYING_BYTES // numbers(1, 100_000).nbytes
    assert 2 < fits < 20
    eventually(lambda: len(sent) >= fits)
    time.sleep(0.3)
    assert len(sent) <= fits + 3  # one more that does not fit, one in hand, one taken
    got = 1 + sum(1 for _ in arriving)
    assert got == len(sent) == 100


def test_who_leaves_keeps_nobody_sending() -> None:
    """A link that is rerouted leaves no thread behind that holds what it could not deliver."""
    before = threading.active_count()
    arriving, sent = sent_to_nobody(threading.Event())
    arriving.close()  # type: ignore[attr-defined]
    eventually(lambda: threading.active_count() == before)
    assert len(sent) < 100
