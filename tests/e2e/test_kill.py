"""A primary killed, one stopped for a while, one killed after its standby: nothing is lost."""

from __future__ import annotations

import pytest

from anabranch.bench import kill


@pytest.mark.slow
@pytest.mark.spark
def test_failures_change_nothing_in_the_output():
    result = kill.run(print, kills=1, pauses=1, standby_first=1, seed=1)
    kill.check(result)
    assert [row["took_over"] for row in result["rows"]] == [True, True, True]
