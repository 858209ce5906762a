"""One thread calls whoever wants to be called now and then."""

from __future__ import annotations

import threading

import pytest

from anabranch.site.sources.pace import Beats
from tests.link.support import eventually


def test_many_are_called_by_one_thread_until_they_have_enough() -> None:
    beats, called, threads = Beats(), [0] * 20, set()

    def beat(number: int) -> bool:
        called[number] += 1
        threads.add(threading.get_ident())
        return called[number] < 3 + number % 2

    for number in range(20):
        beats.every(0.001 * (1 + number % 3), lambda number=number: beat(number))  # type: ignore[misc]
    eventually(lambda: beats._thread is None)
    assert called == [3 + number % 2 for number in range(20)]
    assert len(threads) == 1


def test_one_that_fails_is_not_called_again_and_the_others_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    beats, called = Beats(), threading.Event()

    def fail() -> bool:
        raise ValueError("no")

    beats.every(0.001, fail)
    beats.every(0.002, lambda: not called.set())  # type: ignore[func-returns-value]
    assert called.wait(10)
    assert "ValueError: no" in capsys.readouterr().err


def test_it_starts_again_after_everybody_has_gone() -> None:
    beats = Beats()
    for _ in range(3):
        called = threading.Event()
        beats.every(0.001, lambda called=called: bool(called.set()))  # type: ignore[misc, func-returns-value]
        assert called.wait(10)
        eventually(lambda: beats._thread is None)
