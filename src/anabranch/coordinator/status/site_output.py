"""What console sinks of site processes print, passed on by the process that owns the terminal."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import IO

REST_S = 5.0
"""How long what a site that has ended left in its pipe is waited for."""


class SiteOutput:
    """Whole lines, in the order of each site. They go to the `sys.stdout` of the moment: a live
    table puts itself there, and so knows of them."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None, "a site whose output is passed on writes to a pipe"
        self._thread = threading.Thread(
            target=self._pass_on, args=(process.stdout,), name="site-output", daemon=True
        )
        self._thread.start()

    def _pass_on(self, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                try:
                    sys.stdout.write(line.decode(errors="replace").rstrip("\n") + "\n")
                    sys.stdout.flush()
                except OSError:  # nobody reads us any more: the sites' sinks hear of it, too
                    return

    def close(self) -> None:
        """Once the site has ended: the rest of what it printed."""
        self._thread.join(REST_S)
