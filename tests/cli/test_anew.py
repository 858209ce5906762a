"""`up --anew` says what it deletes, and deletes nothing unless it is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.cli.sites.up import confirm_anew, deleted
from anabranch.coordinator.base.catalog import Catalog
from anabranch.errors import ConfigError
from anabranch.plan.operators import Call
from tests.plan.samples import a_query, a_stream

SINK = Call(name="postgres", options={"url": "postgresql://me:secret@h/d", "table": "hot_rooms"})


def test_it_says_what_is_deleted() -> None:
    told = list(deleted([a_stream("fire"), a_query("hot", "fire", sink=SINK)]))
    assert told == [
        "stream fire: how far it was read, and what it has kept",
        "query hot: its open windows and positions; its rows in table hot_rooms",
    ]


def test_where_nobody_can_be_asked_it_must_be_said(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "catalog.db")
    catalog.change(add=[a_stream("fire")], drop=())
    catalog.close()
    with pytest.raises(ConfigError, match="nobody can be asked here"):
        confirm_anew(tmp_path, yes=False)
    confirm_anew(tmp_path, yes=True)


def test_of_a_new_system_nothing_is_asked(tmp_path: Path) -> None:
    confirm_anew(tmp_path / "none", yes=False)
