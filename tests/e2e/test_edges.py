"""Where deployments live, for real: machines that vanish, services that come late."""

from __future__ import annotations

import pytest

from bench.edges import cut, late
from bench.systems.namespaces import possible


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.skipif(not possible(), reason="network namespaces need root and the program ip")
def test_output_goes_on_in_time_and_nothing_is_lost_or_repeated() -> None:
    """Default settings and RECOVERY 2s: at most 2.2 s without output, 3 s while the link flaps."""
    result = cut.run(print, print, ("RECOVERY 2s",))
    cut.check(result)
    cut_off = [row for row in result["rows"] if row["case"] not in cut.FLAPPING]
    assert all(row["took_over"] and row["fenced"] for row in cut_off)


@pytest.mark.slow
def test_services_that_are_started_after_the_system() -> None:
    """It waits for them, says so, and goes on where it was: every row once, old ones untouched."""
    result = late.run(print, print, away_s=1.0, stops=1, kills=0, apart=False)
    late.check(result)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_everything_is_killed_and_services_come_later() -> None:
    result = late.run(print, print, away_s=75.0, stops=1, kills=10)
    late.check(result)
