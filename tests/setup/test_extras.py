"""What a site is made of is there without what only a coordinator needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in {'fastapi', 'highspy', 'nicegui', 'scipy', 'uvicorn', 'starlette'}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
"""
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "module", ["cli.main", "cli.sites.site", "cli.queries.sql", "site.site", "stage.service"]
)
def test_a_site_needs_neither_dashboard_nor_solvers(module: str) -> None:
    code = f"{BLOCKED}\nimport anabranch.{module}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=ROOT / "src")


def test_a_coordinator_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "s.sql").write_text("SHOW SITES;")
    code = f"{BLOCKED}\nfrom anabranch.cli.main import app_main; app_main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "run", str(tmp_path / "s.sql"), "--for", "1s"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT / "src",
    )
    assert done.returncode == 1
    assert "is not installed. Run pip install 'anabranch[coordinator]'" in " ".join(
        done.stderr.split()
    )
