"""`anabranch prepare` where it cannot work; where it can, setting up for the tests runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.cli.sites import prepare
from anabranch.errors import SetupError


def test_an_environment_that_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by permissions, which do not stop the super-user."""
    (tmp_path / "share").touch()
    monkeypatch.setattr(prepare, "archive_path", lambda: tmp_path / "share" / "spark.jsa")
    with pytest.raises(SetupError) as raised:
        prepare.prepare()
    assert "spark.jsa" in raised.value.line()
    assert "owner of this Python environment" in raised.value.line()
