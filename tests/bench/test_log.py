"""What `bench log` writes and reads is whole, and nothing of it is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.hops import log


def test_all_rates_are_measured_and_the_disk_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "SYNCS", 3)
    said: list[str] = []
    result = log.run(said.append, tmp_path, 3)
    assert result["entries"] == 3_000_000 // log.readings().nbytes
    assert 0.2 < result["packed_to"] < 0.8
    rates = [*result["disk"].values(), *result["log"].values(), *result["tuples"].values()]
    assert all(rate > 0 for rate in (*rates, *result["syncs"].values()))
    assert said
    assert not list(tmp_path.iterdir())
