"""The coordinator knows the folder in which each site keeps its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.coordinator.base.catalog import IN_MEMORY, Catalog
from anabranch.coordinator.base.sites import Sites
from anabranch.errors import CannotResume
from anabranch.link.gate import Credentials
from anabranch.link.peer import Peers
from anabranch.link.reports import StateFolderReport
from anabranch.plan.catalog import StreamDef
from anabranch.plan.operators import Column
from anabranch.runtime.loop import process_loop
from simulation.reports import a_site


def sites(catalog: Catalog) -> Sites:
    network: Any = None
    return Sites(catalog, process_loop(), network, Peers(Credentials("secret")), 5.0)


def beat(known: Sites, folder: str | None, site: str = "room1", place: str = "") -> None:
    state = StateFolderReport(folder, place or f"/state/{folder}") if folder else None
    known.heartbeat(a_site(site, folder=state))


def test_a_site_that_comes_with_another_folder_is_refused_while_state_is_expected() -> None:
    catalog = Catalog(IN_MEMORY)
    known = sites(catalog)
    beat(known, "one")
    stream = StreamDef(name="S", columns=(Column(name="n", type="bigint"),), site="room1")
    catalog.change([stream], [])
    beat(known, "two")
    with pytest.raises(CannotResume) as caught:
        known.check_state("room1")
    assert str(caught.value) == (
        "site room1 keeps its state in /state/two (folder two), and what it is to go on with is in"
        " /state/one (folder one). Start it with --state and that folder; or drop what runs there;"
        " or let all begin anew: anabranch up --anew."
    )
    beat(known, "two", place="/state/one")
    with pytest.raises(CannotResume, match="stop the site, write one into that file, and start it"):
        known.check_state("room1")
    beat(known, "one")
    known.check_state("room1")


def test_it_is_known_after_a_restart_of_the_coordinator(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "c.db")
    stream = StreamDef(name="S", columns=(Column(name="n", type="bigint"),), site="room1")
    catalog.change([stream], [])
    beat(sites(catalog), "one")
    catalog.close()
    again = sites(Catalog(tmp_path / "c.db"))
    beat(again, "two")
    with pytest.raises(CannotResume):
        again.check_state("room1")


def test_where_nothing_is_expected_any_folder_will_do() -> None:
    catalog = Catalog(IN_MEMORY)
    known = sites(catalog)
    elsewhere = StreamDef(name="S", columns=(Column(name="n", type="bigint"),), site="room2")
    catalog.change([elsewhere], [])
    beat(known, "one")
    beat(known, "two")
    known.check_state("room1")


def test_who_begins_anew_accepts_what_is_there() -> None:
    catalog = Catalog(IN_MEMORY)
    known = sites(catalog)
    stream = StreamDef(name="S", columns=(Column(name="n", type="bigint"),), site="room1")
    catalog.change([stream], [])
    beat(known, "one")
    beat(known, "two")
    known.accept_states()
    known.check_state("room1")


def test_a_site_without_a_folder_has_nothing_to_compare() -> None:
    known = sites(Catalog(IN_MEMORY))
    beat(known, None)
    known.check_state("room1")
    known.check_state("never heard of")
