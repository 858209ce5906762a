"""Where deployments live, for real: machines that vanish, services that come late."""

from __future__ import annotations

import pytest

from bench.edges import cut, failover, late, stalls
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


@pytest.mark.slow
def test_a_database_that_is_failed_over_to_a_copy_without_the_last_second() -> None:
    """Refused with both positions; the statement in the message has the query go on."""
    failover.check(failover.run(print, put_back=False))


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.skipif(not possible(), reason="a small disk of its own needs root")
def test_what_stands_still_for_a_while_is_told_and_goes_on_by_itself() -> None:
    """A full disk, a hung database, a paused broker."""
    stalls.check(stalls.run(print, print))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_everything_is_killed_and_services_come_later() -> None:
    result = late.run(print, print, away_s=75.0, stops=1, kills=10)
    late.check(result)
