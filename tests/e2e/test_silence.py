"""A machine that vanishes without a word, for real: packets are dropped, nobody is told.

`make soak` runs it, where network namespaces can be made.
"""

from __future__ import annotations

import pytest

from bench.hops import silence
from bench.systems.namespaces import possible


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.skipif(not possible(), reason="network namespaces need root and the program ip")
def test_output_goes_on_in_time_and_nothing_is_lost_or_repeated() -> None:
    """Default settings and RECOVERY 2s: at most 2.2 s without output, 3 s while the link flaps."""
    result = silence.run(print, print)
    silence.check(result)
    assert [row["took_over"] for row in result["rows"]][:3] == [True] * 3
