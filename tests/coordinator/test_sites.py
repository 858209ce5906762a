"""Which sites there are, and the coordinator that comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.config.cluster import Cluster
from anabranch.coordinator.catalog import Catalog
from anabranch.coordinator.coordinator import Coordinator
from anabranch.coordinator.sites import Sites, nearest
from anabranch.errors import SetupError, SiteError
from anabranch.link.gate import Credentials, Gate
from anabranch.link.peer import Peer

TOKEN = Credentials("secret")


def report(site: str, address: str = "127.0.0.1:1", pid: int = 1) -> dict[str, object]:
    return {"site": site, "address": address, "pid": pid, "tasks": [], "sources": []}


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog(tmp_path / "catalog.db")
    yield catalog
    catalog.close()


@pytest.fixture
def sites(catalog: Catalog) -> Sites:
    return Sites(catalog, TOKEN, gone_after_s=60)


def test_a_heartbeat_registers_and_tells_where_the_others_are(sites: Sites) -> None:
    assert sites.heartbeat(report("room1", "h:1")) == {"room1": "h:1"}
    assert sites.heartbeat(report("centre", "h:2")) == {"room1": "h:1", "centre": "h:2"}
    assert sites.alive() == sites.names() == ["room1", "centre"]
    assert sites.peer("centre").address == "h:2"


def test_a_site_that_moved_is_called_where_it_is(sites: Sites, catalog: Catalog) -> None:
    sites.heartbeat(report("room1", "h:1", pid=1))
    sites.heartbeat(report("room1", "h:9", pid=2))
    assert sites.peer("room1").address == "h:9"
    assert catalog.sites() == {"room1": ("h:9", 2)}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("rom1", "unknown site 'rom1'. Did you mean 'Room1'?"),
        ("ROOM1", "unknown site 'ROOM1'. Did you mean 'Room1'?"),
        ("mars", "unknown site 'mars'. Known sites: Room1, centre."),
    ],
)
def test_an_unknown_site_is_not_the_end_of_the_search(sites: Sites, name: str, line: str) -> None:
    sites.heartbeat(report("Room1"))
    sites.heartbeat(report("centre"))
    with pytest.raises(SiteError) as error:
        sites.peer(name)
    assert error.value.line() == line


def test_nearest_among_none() -> None:
    assert nearest("x", [], "Known sites") == "Known sites: none."


def test_no_site_is_up(sites: Sites) -> None:
    with pytest.raises(SiteError, match="no site is up"):
        sites.any()


def test_a_silent_site_is_not_alive_but_known(catalog: Catalog) -> None:
    sites = Sites(catalog, TOKEN, gone_after_s=-1)
    sites.heartbeat(report("room1"))
    assert sites.alive() == []
    assert sites.names() == ["room1"]


def test_waiting_for_a_site(sites: Sites) -> None:
    assert not sites.wait_for("room1", 0.01)
    beat = threading.Timer(0.05, sites.heartbeat, [report("room1")])
    beat.start()
    assert sites.wait_for("room1", 5)
    beat.join()


def test_others_do_not_end_the_wait(sites: Sites) -> None:
    stopped = threading.Event()

    def noise() -> None:
        while not stopped.wait(0.001):
            sites.heartbeat(report("centre"))

    thread = threading.Thread(target=noise)
    thread.start()
    assert not sites.wait_for("room1", 0.1)
    stopped.set()
    thread.join()


def test_known_sites_survive_a_restart_but_must_be_heard_again(catalog: Catalog) -> None:
    Sites(catalog, TOKEN, 60).heartbeat(report("room1", "h:1"))
    again = Sites(catalog, TOKEN, 60)
    assert again.addresses() == {"room1": "h:1"}
    assert again.alive() == []
    assert not again.wait_for("room1", 0.01)
    again.heartbeat(report("room1", "h:1"))
    assert again.wait_for("room1", 0)


# -- the coordinator that comes back -------------------------------------------------------------


def test_a_restart_keeps_the_port(tmp_path: Path) -> None:
    """Sites keep calling it; whoever restarts on the same state folder is found there."""
    first = Coordinator(tmp_path, Cluster(), TOKEN)
    address = first.address
    peer = Peer("coordinator", address, TOKEN)
    answer = peer.call("heartbeat", report=report("room1", "h:1"))
    assert answer == {"addresses": {"room1": "h:1"}, "routes": {}}
    first.close()
    second = Coordinator(tmp_path, Cluster(), TOKEN)
    assert second.address == address
    assert second.sites.addresses() == {"room1": "h:1"}
    assert peer.call("ping")["coordinator"]
    with pytest.raises(SetupError, match="cannot listen on"):
        Coordinator(tmp_path, Cluster(), TOKEN)
    second.close()


def test_a_site_of_the_same_name_may_not_join_twice(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, Cluster(), TOKEN)
    peer = Peer("coordinator", coordinator.address, TOKEN)
    gate = Gate("127.0.0.1:0", TOKEN, {"ping": lambda body: {}})
    peer.call("join", site="room1", pid=1)
    peer.call("heartbeat", report=report("room1", gate.address, pid=1))
    peer.call("join", site="room1", pid=1)
    with pytest.raises(SiteError, match=f"site room1 is up already, at {gate.address}"):
        peer.call("join", site="room1", pid=2)
    gate.shutdown()  # killed: another may take its place at once
    peer.call("join", site="room1", pid=2)
    coordinator.close()
