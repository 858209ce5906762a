"""A primary killed, one stopped for a while, one without its JVM, one killed after its standby:
nothing is lost.

`make soak` runs it; of the suite, the demonstration kills a primary.
"""

from __future__ import annotations

from typing import Any

import pytest

from bench.hops import kill


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_failures_change_nothing_in_the_output() -> None:
    kept: list[dict[str, Any]] = []
    result = kill.run(print, kept.append, kills=1, pauses=1, jvms=1, standby_first=1, seed=1)
    kill.check(result)
    assert kept == result["rows"]
    assert [row["took_over"] for row in result["rows"]] == [True, True, True, True]
