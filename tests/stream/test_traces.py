"""The protocol in scripts that can be read: events, and what comes of each.

After a change of the protocol on purpose, `REWRITE_TRACES=1 pytest tests/stream/test_traces.py`
writes them anew; the difference is what there is to review.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.stream.trace import Trace

SCRIPTS = sorted((Path(__file__).parent / "traces").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_it_goes_as_it_is_written(path: Path) -> None:
    found = Trace().run(path.read_text())
    if os.environ.get("REWRITE_TRACES"):
        path.write_text(found)
    assert found == path.read_text()
