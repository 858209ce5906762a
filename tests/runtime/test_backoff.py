"""Pauses grow, differ from one to the other, and never end."""

from __future__ import annotations

from anabranch.runtime.troubles import Backoff


def test_pauses_grow_to_the_longest_and_differ() -> None:
    pauses = Backoff(0.5, 10.0)
    many = [[pauses.pause_s(tries, f"sink {n}") for n in range(100)] for tries in range(1, 12)]
    for tries, row in enumerate(many):
        whole = min(10.0, 0.5 * 2**tries)
        assert all(whole / 2 <= one <= whole for one in row)
        assert len(set(row)) > 90
    assert pauses.pause_s(10**9, "one that is away for years") <= 10.0
