"""Arrow reads its environment when it is loaded; the command line must come before."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Arrow's own allocator stays")
def test_arrow_allocates_with_glibc_in_all_it_does() -> None:
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            "from anabranch.cli.main import one_allocator; one_allocator()\n"
            "import pyarrow; print(pyarrow.default_memory_pool().backend_name)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "system"
