"""Which sites a coordinator takes for its own, and whose orders a site takes."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.control.members import Membership
from anabranch.coordinator.service import launch
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.coordinator.service.launch import SiteProcesses, may_be_up
from anabranch.errors import ConfigError, ProtocolError, SiteError, Superseded
from anabranch.link.gate import Credentials
from anabranch.link.message import PROTOCOL, Origin, read_message, written
from anabranch.link.messages import DropTasks, JoinCluster, Prepare, SendReport
from anabranch.link.peer import Peer
from anabranch.link.reports import SiteReport, SourceReport
from anabranch.process import birth, end
from anabranch.site.member import Member
from simulation.reports import a_site, a_source
from tests.plan.samples import a_stream

TOKEN = Credentials("secret")


def report(*parts: SourceReport, **said: Any) -> SiteReport:
    return a_site("room1", *parts, **{"address": "127.0.0.1:1", "pid": os.getpid()} | said)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    (tmp_path / "state").mkdir()
    catalog = Catalog(tmp_path / "state" / "catalog.db")
    yield catalog
    catalog.close()


# -- versions ------------------------------------------------------------------------------------


def test_a_site_of_another_protocol_is_refused_with_both_versions(catalog: Catalog) -> None:
    members = Membership(catalog)
    with pytest.raises(ProtocolError, match=r"anabranch 9\.1 with protocol 7, .* protocol 2\. "):
        members.join(JoinCluster("room1", 1, protocol=7, version="9.1"))
    with pytest.raises(ProtocolError, match="of an earlier version with protocol 0"):
        members.join(JoinCluster("room1", 1))
    with pytest.raises(ProtocolError, match="protocol 7"):
        members.heard(report(protocol=7))
    assert members.join(JoinCluster("room1", 1, PROTOCOL, "0.1.0")) > 0


def test_what_a_later_version_adds_to_a_message_is_ignored() -> None:
    plain = written(Prepare((a_stream(),), ())).decode()
    later = plain.replace('"kind":"stream"', '"kind":"stream","colour":"red"', 1)
    later = later.replace('"resume"', '"haste":true,"resume"')
    assert later.count("colour") == later.count("haste") == 1
    assert read_message(Prepare, later.encode()) == Prepare((a_stream(),), ())


def test_a_catalog_says_who_has_written_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    catalog = Catalog(path)
    catalog.change([a_stream()], ())
    catalog.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE setting SET value = '0.7' WHERE name = 'version'")
        db.execute("UPDATE definition SET body = replace(body, '\"base\"', '\"bass\"')")
    db.close()
    again = Catalog(path)
    with pytest.raises(ConfigError, match=r"bass: Extra .* anabranch 0\.7 has written the catalog"):
        again.definitions()
    again.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE setting SET value = '99' WHERE name = 'format'")
    db.close()
    with pytest.raises(ConfigError, match="in format 99; this is anabranch"):
        Catalog(path)


# -- catalogs ------------------------------------------------------------------------------------


def test_an_older_copy_of_the_catalog_gives_out_no_number_again(catalog: Catalog) -> None:
    place = Path(catalog.origin.folder)
    shutil.copytree(place, place.parent / "backup")
    given = [catalog.next_number() for _ in range(5)]
    restored = Catalog(place.parent / "backup" / "catalog.db")
    members = Membership(restored)
    members.heard(report(seen=given[-1]))
    assert restored.next_number() > given[-1]
    members.heard(report(seen=2))
    again = Catalog(place.parent / "backup" / "catalog.db")
    assert again.next_number() > given[-1] + 1
    for one in (restored, again):
        one.close()


def test_two_systems_of_one_token_and_port_are_noticed(tmp_path: Path) -> None:
    """What runs for the one is not the other's; what runs nothing may become so."""
    folders = [tmp_path / name for name in ("x", "y")]
    for one in folders:
        one.mkdir()
    first = Coordinator(folders[0], ClusterConfig(), TOKEN)
    theirs = Peer("coordinator", first.address, TOKEN).send(SendReport(report())).origin
    first.close()
    second = Coordinator(folders[1], ClusterConfig(), TOKEN)
    peer = Peer("coordinator", second.address, TOKEN)
    with pytest.raises(SiteError) as refused:
        peer.send(SendReport(report(a_source("s", born=3), origin=theirs)))
    assert all(str(folder) in str(refused.value) for folder in folders)
    assert second.sites.names() == []
    assert peer.send(SendReport(report(origin=theirs))).origin != theirs
    second.close()


def test_a_site_takes_no_orders_of_another_catalog() -> None:
    running = True
    member = Member("room1", lambda: running)
    member.check(DropTasks(origin=Origin("y", "/y")))
    member.belongs_to(Origin("x", "/x"))
    member.check(DropTasks(origin=Origin("x", "/elsewhere")))
    with pytest.raises(SiteError, match=r"state in /x has .* state in /y\. Stop one"):
        member.check(DropTasks(origin=Origin("y", "/y")))
    running = False
    member.check(DropTasks(origin=Origin("y", "/y")))


# -- processes -----------------------------------------------------------------------------------


def test_a_process_that_was_replaced_is_told_to_end(catalog: Catalog) -> None:
    """It stood still, was taken for dead, and reports again."""
    members = Membership(catalog)
    old, new = (members.join(JoinCluster("room1", 1, PROTOCOL, "0.1.0")) for _ in range(2))
    members.heard(report(life=old))
    members.heard(report(life=new))
    for one in (members, Membership(catalog)):
        with pytest.raises(Superseded, match="started again since"):
            one.heard(report(life=old))
        one.heard(report(life=new))


def a_process() -> subprocess.Popen[bytes]:
    waits = [sys.executable, "-c", "import time; time.sleep(600)"]
    return subprocess.Popen(waits, start_new_session=True)


def test_a_number_that_another_process_has_by_now_is_left_alone() -> None:
    process = a_process()
    try:
        assert birth(process.pid) == birth(process.pid) != ""
        assert end(process.pid, "another boot 12345", 1.0)
        assert process.poll() is None
        process.send_signal(signal.SIGSTOP)
        assert end(process.pid, birth(process.pid), 10.0)
        assert birth(process.pid) == ""
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def outlived(tmp_path: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A state folder whose coordinator was killed, and the process of its site."""
    process = a_process()
    first = Coordinator(tmp_path, ClusterConfig(), TOKEN)
    peer = Peer("coordinator", first.address, TOKEN)
    peer.send(SendReport(report(pid=process.pid, started=birth(process.pid))))
    first.close()
    yield tmp_path, process
    process.kill()
    process.wait()


def test_a_silent_process_is_waited_for_and_ended_before_another_begins(
    outlived: tuple[Path, subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "LEASE_S", 0.5)
    state, process = outlived
    process.send_signal(signal.SIGSTOP)
    second = Coordinator(state, ClusterConfig(), TOKEN)
    begun = time.monotonic()
    said: list[str] = []
    processes = SiteProcesses(second, [], state, tied=False, progress=said.append)
    assert not processes._goes_on("room1")
    assert time.monotonic() - begun >= 0.5
    assert said == [f"Waiting for site room1 (process {process.pid}), which does not answer …"]
    assert process.wait(10) == -signal.SIGKILL
    processes.close()
    second.close()


def test_a_process_that_reports_within_its_lease_goes_on(
    outlived: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    state, process = outlived
    second = Coordinator(state, ClusterConfig(), TOKEN)

    def answers(line: str) -> None:
        peer = Peer("coordinator", second.address, TOKEN)
        peer.send(SendReport(report(pid=process.pid, started=birth(process.pid))))

    processes = SiteProcesses(second, [], state, tied=False, progress=answers)
    assert processes._goes_on("room1")
    assert process.poll() is None
    processes.close()
    second.close()


def test_sites_whose_processes_have_ended_are_not_looked_for(
    outlived: tuple[Path, subprocess.Popen[bytes]],
) -> None:
    state, process = outlived
    second = Coordinator(state, ClusterConfig(), TOKEN)
    assert may_be_up(second)
    process.kill()
    process.wait()
    assert not may_be_up(second)
    second.close()


def test_of_other_machines_nobody_knows(tmp_path: Path) -> None:
    first = Coordinator(tmp_path, ClusterConfig(), TOKEN)
    elsewhere = report(address="10.0.0.5:7101", pid=1, started="another boot 12345")
    Peer("coordinator", first.address, TOKEN).send(SendReport(elsewhere))
    first.close()
    second = Coordinator(tmp_path, ClusterConfig(), TOKEN)
    assert may_be_up(second)
    second.close()
