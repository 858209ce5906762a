"""The JSON of a status is derived from its types, and says what it always said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.coordinator.base.reports import SilentSite, SiteStatus, SystemStatus
from anabranch.errors import ProtocolError
from anabranch.link.message import plain, read, written
from anabranch.link.reports import SiteReport
from simulation.reports import a_site, a_source, a_status, a_task, guarding, silent, tuned, up

SAID = Path(__file__).parents[1] / "e2e" / "statuses"


@pytest.mark.parametrize("name", ["running", "taken", "away"])
def test_what_a_system_said_is_the_same_after_a_trip(name: str) -> None:
    """To the letter, as `anabranch status --json` prints it."""
    text = (SAID / f"{name}.json").read_text()
    status = read(SystemStatus, json.loads(text))
    assert json.dumps(plain(status), indent=2) + "\n" == text
    kinds = {SilentSite} if name == "away" else {SiteStatus}
    assert {type(site) for site in status.sites} == kinds


def test_a_made_up_status_is_the_same_after_a_trip() -> None:
    """What tests and the simulation make has all that a real one has."""
    standby = a_task("q", "room2", "standby", standby=guarding(tuning=(tuned(),)))
    here = up("room1", a_task("q"), a_source("s", problem="away", problem_s=2.5))
    status = a_status(here, up("room2", standby), silent("room3", "starting"))
    assert read(SystemStatus, json.loads(written(status))) == status


def test_a_report_that_lacks_something_is_refused_with_its_place() -> None:
    said = plain(a_site("room1", a_task("q")))
    del said["tasks"][0]["rows_in"]
    with pytest.raises(ProtocolError, match=r"SiteReport: tasks\.0\.rows_in: Field required"):
        read(SiteReport, said)


def test_a_report_of_a_later_version_is_read() -> None:
    report = a_site("room1", a_task("q", standby=guarding(tuning=(tuned(),))))
    said = plain(report) | {"colour": "red"}
    said["tasks"][0] |= {"mood": "good"}
    said["tasks"][0]["tuning"][0]["load"]["weight"] = 3
    assert read(SiteReport, said) == report


def test_a_report_of_a_program_before_lives_and_catalogs_is_read_and_not_understood() -> None:
    """It is refused by its protocol, and that says by whom it was sent."""
    said = plain(a_site("room1"))
    for key in ("seen", "origin", "life", "started", "protocol", "version"):
        del said[key]
    report = read(SiteReport, said)
    assert (report.protocol, report.version) == (0, "of before")
