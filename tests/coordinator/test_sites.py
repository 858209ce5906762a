"""Which sites there are, and the coordinator that comes back."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.cli.sites import site
from anabranch.config.cluster import ClusterConfig, parse_cluster
from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import Sites, nearest
from anabranch.coordinator.requests import Execute
from anabranch.coordinator.service import launch
from anabranch.coordinator.service.coordinator import Coordinator
from anabranch.errors import AnabranchError, SetupError, SiteError
from anabranch.link.gate import LOCAL, Credentials, Gate
from anabranch.link.message import PROTOCOL
from anabranch.link.messages import JoinCluster, Ping, Pong, SendReport, Status
from anabranch.link.network import FlightNetwork
from anabranch.link.peer import Peer, Peers
from anabranch.link.reports import SiteReport
from anabranch.spark import own
from simulation.reports import a_site, a_source, a_task
from tests.link.support import LOOP
from tests.plan.samples import a_query, a_stream

TOKEN = Credentials("secret")


def report(site: str, address: str = "127.0.0.1:1", pid: int = 1) -> SiteReport:
    return a_site(site, address=address, pid=pid)


def a_register(catalog: Catalog, gone_after_s: float = 60, expected: tuple[str, ...] = ()) -> Sites:
    peers = Peers(TOKEN)
    return Sites(catalog, LOOP, FlightNetwork(LOOP, "", peers), peers, gone_after_s, expected)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    catalog = Catalog(tmp_path / "catalog.db")
    yield catalog
    catalog.close()


@pytest.fixture
def sites(catalog: Catalog) -> Sites:
    return a_register(catalog)


def test_what_is_dropped_is_not_reported_any_more(sites: Sites) -> None:
    """Its rate would be taken for that of the next stream of its name."""
    streams = a_source("s", rate=2.5), a_source("t", rate=1.0)
    sites.heartbeat(a_site("room1", *streams, a_task("q"), a_task("r")))
    sites.forget("room1", ["s"], ["q"])
    sites.forget("centre", ["t"], ["r"])
    record = sites.record("room1")
    assert record is not None
    assert record.report is not None
    assert [(one.stream, one.rate) for one in record.report.sources] == [("t", 1.0)]
    assert [one.name for one in record.tasks] == ["r"]


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


def test_none_is_up_yet_while_some_are_starting(sites: Sites) -> None:
    sites.starts("room1")
    with pytest.raises(SiteError) as caught:
        sites.any()
    expected = r"no site is up yet: room1 is starting \(\d+ s so far\). Try again in a moment."
    assert re.match(expected, caught.value.line())
    beat = threading.Timer(0.05, sites.heartbeat, [report("room1")])
    beat.start()
    sites.wait_for_any(60)
    assert sites.alive() == ["room1"]
    beat.join()


def test_a_silent_site_is_not_alive_but_known(catalog: Catalog) -> None:
    sites = a_register(catalog, -1)
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
    a_register(catalog).heartbeat(report("room1", "h:1"))
    again = a_register(catalog)
    assert again.addresses() == {"room1": "h:1"}
    assert again.alive() == []
    assert not again.wait_for("room1", 0.01)
    again.heartbeat(report("room1", "h:1"))
    assert again.wait_for("room1", 0)


def test_a_site_that_is_being_started(sites: Sites) -> None:
    sites.heartbeat(report("room1"))
    sites.starts("room1")
    assert sites.alive() == []
    assert list(sites.starting()) == ["room1"]
    assert sites.absence("room1")[0] == "site room1 is starting (0 s so far)"
    sites.wait_for_starting(["centre"], 60)
    beat = threading.Timer(0.05, sites.heartbeat, [report("room1")])
    beat.start()
    sites.wait_for_starting(["room1"], 60)
    assert sites.alive() == ["room1"]
    assert not sites.starting()
    beat.join()


def test_what_show_sites_says(catalog: Catalog) -> None:
    sites = a_register(catalog, expected=("a", "b", "c"))
    sites.heartbeat(report("a", "h:1"))
    sites.starts("b")
    sites.heartbeat(report("d", "h:4"))
    sites.died("d")
    assert sites.rows() == [
        ("a", "h:1", "up"),
        ("b", "", "starting (0 s so far)"),
        ("c", "", "not joined"),
        ("d", "h:4", "unreachable"),
    ]


def test_a_site_that_hangs_is_waited_for_once(sites: Sites) -> None:
    """Until it is heard of again: one that stands still must not slow everything else down."""
    hang = threading.Event()
    asked = []

    def status(message: Status) -> SiteReport:
        asked.append(message)
        hang.wait(10)
        return report("site1")

    gates = [
        Gate("127.0.0.1:0", TOKEN, {Status: status if n else lambda asked: report("site0")})
        for n in range(2)
    ]
    for n, gate in enumerate(gates):
        LOCAL.pop(gate.address)
        sites.heartbeat(report(f"site{n}", gate.address, n))
    for _ in range(3):
        assert LOOP.run(sites.ask(Status())) == {"site0": report("site0")}
    assert len(asked) == 1
    hang.set()
    sites.heartbeat(report("site1", gates[1].address, 1))
    assert LOOP.run(sites.ask(Status())).keys() == {"site0", "site1"}
    for gate in gates:
        gate.shutdown()


# -- the coordinator that comes back -------------------------------------------------------------


def test_a_restart_keeps_the_port(tmp_path: Path) -> None:
    """Sites keep calling it; whoever restarts on the same state folder is found there."""
    first = Coordinator(tmp_path, ClusterConfig(), TOKEN)
    address = first.address
    peer = Peer("coordinator", address, TOKEN)
    answer = peer.send(SendReport(report("room1", "h:1")))
    assert answer.addresses == {"room1": "h:1"}
    first.close()
    second = Coordinator(tmp_path, ClusterConfig(), TOKEN)
    assert second.address == address
    assert second.sites.addresses() == {"room1": "h:1"}
    assert peer.send(Ping()).pid == os.getpid()
    with pytest.raises(SetupError, match="a coordinator is up already"):
        Coordinator(tmp_path, ClusterConfig(), TOKEN)
    second.close()


def test_a_port_that_others_have_by_now_is_left_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch.coordinator.service.coordinator.OLD_PORT_S", 0.3)
    first = Coordinator(tmp_path, ClusterConfig(), TOKEN)
    before = first.address
    first.close()
    other = Gate(before, Credentials("another system's"), {})
    said: list[str] = []
    second = Coordinator(tmp_path, ClusterConfig(), TOKEN, said.append)
    assert second.address != before
    assert said[0].startswith(f"cannot listen on {before}: address already in use. Sites that")
    assert Peer("coordinator", second.address, TOKEN).send(Ping()).pid == os.getpid()
    second.close()
    other.shutdown()


def test_a_site_of_the_same_name_may_not_join_twice(tmp_path: Path) -> None:
    coordinator = Coordinator(tmp_path, ClusterConfig(), TOKEN)
    peer = Peer("coordinator", coordinator.address, TOKEN)
    gate = Gate("127.0.0.1:0", TOKEN, {Ping: lambda asked: Pong(1)})
    peer.send(JoinCluster("room1", 1, PROTOCOL))
    peer.send(SendReport(report("room1", gate.address, pid=1)))
    peer.send(JoinCluster("room1", 1, PROTOCOL))
    with pytest.raises(SiteError, match=f"site room1 is up already, at {gate.address}"):
        peer.send(JoinCluster("room1", 2, PROTOCOL))
    gate.shutdown()  # killed: another may take its place at once
    peer.send(JoinCluster("room1", 2, PROTOCOL))
    coordinator.close()


# -- sites that are being started ----------------------------------------------------------------


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Coordinator]:
    """One that has begun to start room1."""
    coordinator = Coordinator(tmp_path, ClusterConfig(), TOKEN)
    coordinator.sites.heartbeat(report("centre", "127.0.0.1:1", pid=1))
    coordinator.sites.starts("room1")
    yield coordinator
    coordinator.close()


@pytest.mark.parametrize("waits", [True, False])
def test_statements_wait_for_sites_that_are_starting(starting: Coordinator, waits: bool) -> None:
    """Unless they are told not to."""
    peer = Peer("coordinator", starting.address, TOKEN)
    text = "CREATE STREAM s (x INT) FROM rate(tps = 1) AT room1;"
    beat = threading.Timer(0.2, starting.sites.heartbeat, [report("room1", "127.0.0.1:1", 9)])
    if waits:
        beat.start()
    with pytest.raises(AnabranchError) as caught:
        peer.send(Execute(text, "sql", "", waits))
    if waits:  # and goes on once it is there, to ask it about types
        assert caught.value.message == "no site is up"
        beat.join()
    else:
        assert re.match(r"sql:1:47: site room1 is starting \(\d+ s so far\)", caught.value.line())


def test_a_query_is_not_moved_to_a_site_that_is_starting(starting: Coordinator) -> None:
    """And nobody is told to start it."""
    starting._catalog.change(add=[a_stream(site="centre"), a_query(site="centre")], drop=())
    with pytest.raises(SiteError) as caught:
        starting.move("hot", "room1")
    assert re.fullmatch(
        r"site room1 is starting \(\d+ s so far\). Try again in a moment.", caught.value.line()
    )


def test_a_port_that_is_taken_is_found_before_spark_starts(
    starting: Coordinator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(own, "start_session", never)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        complaint = f"cannot listen on {address}: address already in use"
        with pytest.raises(SetupError, match=complaint):
            site.run_site("room1", starting.address, TOKEN, listen=address)
        starting.cluster = parse_cluster(f'[site.room1]\nlisten = "{address}"')
        with pytest.raises(SetupError, match=complaint):
            launch.RunningCluster(starting, tmp_path, lambda text: None, tied=False)
