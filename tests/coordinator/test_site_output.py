"""What site processes print comes through the process that owns the terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.coordinator.service.processes import SiteOutput
from tests.e2e.commands import COMMAND, environment
from tests.e2e.terminal import TMUX, RealTerminal


def test_lines_are_passed_on_whole(capsys: pytest.CaptureFixture[str]) -> None:
    code = "print('one\\ntwo ü', flush=True); print('three', end='')"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    output = SiteOutput(process)
    process.wait(10)
    output.close()
    assert capsys.readouterr().out == "one\ntwo ü\nthree\n"


@pytest.mark.slow
@pytest.mark.skipif(not TMUX, reason="there is no tmux")
def test_a_live_table_erases_nothing(tmp_path: Path) -> None:
    """Whatever the sites print is still on the terminal when the run is over."""
    (tmp_path / "s.sql").write_text("""
        CREATE STREAM ticks (value BIGINT) FROM rate(tps = 40, rows = 60) AT here;
        CREATE QUERY near AS SELECT value FROM ticks WHERE value < 10 INTO console() AT here;
        CREATE QUERY far AS SELECT value FROM ticks INTO console() AT there;
    """)
    (tmp_path / "c.toml").write_text('[site.here]\n[site.there]\nisolation = "process"\n')
    command = [*COMMAND, "run", "s.sql", "--cluster", "c.toml", "--until-idle"]
    with RealTerminal(command, tmp_path, environment(tmp_path / "tmp")) as terminal:
        lines = terminal.lines_at_the_end(timeout_s=150)
    for query, rows in (("near", 10), ("far", 60)):
        shown = [line.split()[2] for line in lines if line.startswith(f"{query}  20")]
        assert shown == [f"value={n}" for n in range(rows)], "\n".join(lines)
    table = [line.split()[:3] for line in lines if line.startswith("far ")][-1]
    assert table == ["far", "there", "done"]
