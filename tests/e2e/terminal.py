"""A command in a real terminal, and what is on it in the end."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.commands import wait_until

TMUX = shutil.which("tmux")
END = "the command has ended"


class RealTerminal:
    """140 × 40, with a history; a server of its own, so that nobody else's is touched."""

    def __init__(self, command: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        self._server = f"test-{uuid.uuid4().hex}"
        # The width is the terminal's own to say.
        told = {key: value for key, value in env.items() if key not in ("COLUMNS", "TMUX")}
        line = f"{shlex.join(command)}; echo {END}; sleep 600"
        self._tmux("new-session", "-d", "-x", "140", "-y", "40", "-c", str(cwd), line, env=told)

    def __enter__(self) -> RealTerminal:
        return self

    def __exit__(self, *exc: object) -> None:
        self._tmux("kill-server")

    def lines_at_the_end(self, timeout_s: float) -> list[str]:
        wait_until(lambda: END in self.lines(), "the command ends", timeout_s)
        return self.lines()

    def lines(self) -> list[str]:
        """All that is on it, with what has moved out at the top."""
        shown = self._tmux("capture-pane", "-p", "-S", "-")
        return [line.rstrip() for line in shown.splitlines()]

    def _tmux(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        command = [TMUX or "tmux", "-L", self._server, "-f", "/dev/null", *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, env=env, timeout=20
        ).stdout
