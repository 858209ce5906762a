"""A real gate and a real peer on loopback."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import (
    AnabranchError,
    Gap,
    Refused,
    ScriptError,
    SetupError,
    SinkError,
    SiteError,
)
from anabranch.link.gate import Credentials, Gate
from anabranch.link.message import Bring, Fetch, Message
from anabranch.link.messages import Attach, Follow, Ping, Pong
from anabranch.link.outlet import LiveOutlet
from anabranch.link.peer import Peer, Peers
from anabranch.link.wire import ArrowBatches
from anabranch.stream.batch import END_WATERMARK
from anabranch.stream.restart import RestartPoint
from tests.link.support import LOOP, TOKEN, a_gate, an_outlet, eventually, follow, numbers, values


@dataclass(frozen=True, slots=True)
class Divide(Message[float]):
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class Fail(Message[None]):
    pass


@dataclass(frozen=True, slots=True)
class PointAt(Message[None]):
    pass


@dataclass(frozen=True, slots=True)
class Where(Message[str]):
    """As a gate of this name answers."""


@dataclass(frozen=True, slots=True)
class Rows(Bring[int]):
    """Answered with the number of rows, unless there are more than `most`."""

    most: int


@dataclass(frozen=True, slots=True)
class Lost(Bring[int]):
    """No gate answers it."""


@dataclass(frozen=True, slots=True)
class Numbers(Fetch[int]):
    """Answered with the numbers below `upto`, and how often there are so many in a hundred."""

    upto: int


NUMBERS = pa.table({"n": pa.array(range(1_000_000))})


def pong(asked: Ping) -> Pong:
    return Pong(7)


@pytest.fixture
def outlet() -> LiveOutlet:
    outlet = an_outlet()
    outlet.attach("c")
    return outlet


@pytest.fixture
def gate(outlet: LiveOutlet) -> Iterator[Gate]:
    def fail(asked: Fail) -> None:
        raise SinkError("disk full", place="centre", remedy="Make room.")

    def point_at(asked: PointAt) -> None:
        raise ScriptError("unknown stream", place="a.sql:1", remedy="Did you mean S?", excerpt="^")

    def divide(asked: Divide) -> float:
        return asked.a / asked.b

    def rows(asked: Rows, table: pa.RecordBatchReader) -> int:
        found = 0
        for batch in table:
            found += len(batch)
            if found > asked.most:
                raise SinkError("too much " * 1_000, remedy="Bring less.")
        return found

    def count(asked: Numbers) -> tuple[pa.Table, int]:
        if asked.upto < 0:
            raise SinkError("disk full", place="centre", remedy="Make room.")
        return pa.table({"n": pa.array(range(asked.upto), pa.int64())}), 100 // asked.upto

    actions = {Fail: fail, PointAt: point_at, Divide: divide, Rows: rows, Numbers: count}
    with a_gate(outlet, actions=actions) as gate:
        yield gate


@pytest.fixture
def peer(gate: Gate) -> Iterator[Peer]:
    peer = Peer("room1", gate.address, TOKEN)
    yield peer
    peer.close()


# -- following -----------------------------------------------------------------------------------


def test_following_delivers_all_and_ends_with_the_stream(outlet: LiveOutlet, peer: Peer) -> None:
    for first in range(1, 101, 10):
        outlet.append([numbers(first, 7), numbers(first + 7, 3)], watermark=first)
    outlet.end()
    batches = list(peer.open(Follow("S", "c", after=0, epoch=0)))
    assert values(batches) == list(range(1, 101))
    assert batches[-1].watermark == END_WATERMARK
    assert [batch.watermark for batch in batches] == sorted(batch.watermark for batch in batches)


def test_following_begins_behind_any_position(outlet: LiveOutlet, peer: Peer) -> None:
    outlet.append([numbers(1, 10), numbers(11, 10)], 5)
    outlet.end()
    assert values(peer.open(Follow("S", "c", after=14, epoch=0))) == list(range(15, 21))
    assert values(peer.open(Follow("S", "c", after=20, epoch=0))) == []


def test_an_idle_stream_sends_heartbeats_that_carry_its_watermark(
    outlet: LiveOutlet, peer: Peer
) -> None:
    """The watermark of an idle stream goes on."""
    following = peer.open(Follow("S", "c", after=0, epoch=0))
    batches = iter(following)
    outlet.append([numbers(1, 1)], 1)
    eventually(lambda: next(batches).watermark == 1)
    first, second = next(batches), next(batches)
    assert (first.rows, first.first, first.last, first.watermark) == (0, 2, 1, 1)
    assert second == first
    outlet.append([], watermark=70)
    eventually(lambda: next(batches).watermark == 70)
    following.cancel()


def test_a_consumer_that_asks_for_what_was_released_is_told_so(
    outlet: LiveOutlet, peer: Peer
) -> None:
    outlet.append([numbers(1, 10)], 5)
    outlet.level1("c", 10, RestartPoint((10,), 10))
    following = peer.open(Follow("S", "c", after=4, epoch=0))
    with pytest.raises(Gap, match="5 was asked for, 10 released"):
        list(following)


def test_a_stream_that_is_not_here_may_be_here_later(peer: Peer) -> None:
    with pytest.raises(SiteError, match="no stream T here"):
        list(peer.open(Follow("T", "c", after=0, epoch=0)))


def test_cancel_ends_a_blocked_read(outlet: LiveOutlet, gate: Gate, peer: Peer) -> None:
    slow = LiveOutlet(LOOP, "slow", ArrowBatches(outlet.schema), limit=1, heartbeat_s=60)
    gate.find_outlet = {"slow": slow}.__getitem__
    following = peer.open(Follow("slow", "c", after=0, epoch=0))
    batches = iter(following)
    next(batches)
    ended = threading.Event()

    def read() -> None:
        with pytest.raises(SiteError):
            next(batches)
        ended.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert not ended.wait(0.05)
    following.cancel()
    assert ended.wait(5)
    reader.join()
    slow.close()


# -- one follower per consumer -------------------------------------------------------------------


def test_a_consumer_that_follows_anew_ends_its_old_connection(
    outlet: LiveOutlet, peer: Peer
) -> None:
    old = iter(peer.open(Follow("S", "c", after=0, epoch=0)))
    next(old)
    following = peer.open(Follow("S", "c", after=0, epoch=0))
    new = iter(following)
    next(new)
    outlet.append([numbers(1, 5)], 1)
    assert values([next(batch for batch in new if batch.rows)]) == [1, 2, 3, 4, 5]
    assert all(batch.rows == 0 for batch in old)
    following.cancel()


def test_a_connection_that_hangs_does_not_take_the_room_of_the_next() -> None:
    """The old follower is stuck in a send; when it wakes up it must not count as the consumer."""
    outlet = an_outlet(limit=1_000)
    outlet.attach("c")
    outlet.append([numbers(1, 30), numbers(31, 30)], 1)
    old = follow(outlet, "c", 0)
    next(old)
    new = follow(outlet, "c", 0)
    assert values([next(new), next(new)]) == list(range(1, 61))
    assert outlet.room()
    assert values(old) == list(range(31, 61))  # what it had been sent already
    assert outlet.room()


# -- who may call --------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["", "wrong", "secret ", "SECRET"])
def test_a_wrong_token_is_refused(gate: Gate, token: str) -> None:
    stranger = Peer("room1", gate.address, Credentials(token))
    for call in (
        lambda: stranger.send(Divide(1, 1)),
        lambda: list(stranger.open(Follow("S", "c", after=0, epoch=0))),
        lambda: stranger.bring(Rows(5), NUMBERS, 10),
        lambda: stranger.fetch(Numbers(5), 10),
    ):
        with pytest.raises(SiteError) as refused:
            call()
        assert refused.value.line() == (
            f"room1 at {gate.address} refused our token. "
            "Use the token of that cluster (--token-file)."
        )
        assert not isinstance(refused.value, Refused)  # it lives


def test_a_port_in_use_is_one_line(gate: Gate) -> None:
    with pytest.raises(SetupError) as error:
        Gate(gate.address, TOKEN, {})
    assert error.value.line() == (
        f"cannot listen on {gate.address}: address already in use. "
        "Choose another address with `listen` in cluster.toml, or port 0 for any port."
    )


@pytest.mark.parametrize("listen", ["no-such-host.invalid:0", "192.0.2.1:0"])
def test_an_address_that_is_not_ours_is_not_taken_for_a_port_in_use(listen: str) -> None:
    with pytest.raises(SetupError, match=re.escape(f"cannot listen on {listen}: ")) as error:
        Gate(listen, TOKEN, {})
    assert "in use" not in error.value.line()


def test_a_port_is_free_again_after_shutdown() -> None:
    with a_gate() as first:
        address = first.address
    second = Gate(address, TOKEN, {Ping: pong})
    assert Peer("x", address, TOKEN).send(Ping()) == Pong(7)
    second.shutdown()


# -- actions -------------------------------------------------------------------------------------


def test_an_action_answers(peer: Peer) -> None:
    assert peer.send(Divide(9, 2)) == 4.5


def test_errors_of_actions_arrive_whole(peer: Peer) -> None:
    with pytest.raises(SinkError) as error:
        peer.send(Fail())
    assert error.value.line() == "centre: disk full. Make room."
    with pytest.raises(ScriptError) as pointed:
        peer.send(PointAt())
    assert (pointed.value.place, pointed.value.excerpt) == ("a.sql:1", "^")


def test_our_own_bugs_arrive_as_one_line(peer: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(AnabranchError, match="action divide failed: ZeroDivisionError"):
        peer.send(Divide(1, 0))
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_message_that_a_gate_does_not_know_is_refused_without_a_trace(
    gate: Gate, peer: Peer, capfd: pytest.CaptureFixture[str]
) -> None:
    for call in (lambda: peer.send(Where()), lambda: peer.bring(Lost(), NUMBERS, 30)):
        with pytest.raises(SiteError, match=f"nobody answers .* at {gate.address}"):
            call()
    assert capfd.readouterr().err == ""


def test_a_message_may_come_with_a_table(peer: Peer) -> None:
    assert peer.bring(Rows(most=1_000_000), NUMBERS, 30) == 1_000_000
    assert peer.bring(Rows(most=5), NUMBERS.schema.empty_table(), 30) == 0


def test_a_message_may_be_answered_with_a_table(peer: Peer) -> None:
    table, often = peer.fetch(Numbers(40), 30)
    assert (table.column("n").to_pylist(), often) == (list(range(40)), 2)
    assert peer.fetch(Numbers(1_000_000), 30) == (NUMBERS, 0)


def test_errors_of_messages_with_tables_arrive_whole(
    peer: Peer, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SinkError, match="too much") as caught:  # while more is being sent
        peer.bring(Rows(most=10), NUMBERS, 30)
    assert caught.value.remedy == "Bring less."
    with pytest.raises(SinkError) as caught:
        peer.fetch(Numbers(-1), 30)
    assert caught.value.line() == "centre: disk full. Make room."
    with pytest.raises(AnabranchError, match="action numbers failed: ZeroDivisionError"):
        peer.fetch(Numbers(0), 30)
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_nobody_there_is_one_line(gate: Gate) -> None:
    with a_gate() as gone:
        address = gone.address
    peer = Peer("room2", address, TOKEN)
    for call in (lambda: peer.send(Ping()), lambda: peer.open(Follow("S", "c", 0, 0))):
        with pytest.raises(SiteError) as error:
            call()
        assert isinstance(error.value, Refused)
        line = error.value.line()
        assert line.startswith(f"room2 at {address} is unreachable (")
        assert line.endswith("Check that it runs and that the address is right.")
        assert "\n" not in line


def test_a_site_called_like_a_death_is_not_dead(outlet: LiveOutlet) -> None:
    """Its name, its streams and its own errors say nothing about its process."""

    def fail(asked: Fail) -> None:
        raise SiteError("the other connection refused: socket closed")

    with a_gate(outlet, actions={Fail: fail}) as gate:
        peer = Peer("connection refused", gate.address, TOKEN)
        for call in (
            lambda: peer.send(Fail()),
            lambda: list(peer.open(Follow("connection refused", "c", 0, 0))),
        ):
            with pytest.raises(SiteError) as error:
                call()
            assert not isinstance(error.value, Refused)


def test_a_gate_that_does_not_answer_in_time_is_unreachable() -> None:
    hang = threading.Event()
    with a_gate(actions={Fail: lambda asked: hang.wait(10), Ping: pong}) as gate:
        peer = Peer("room2", gate.address, TOKEN)
        with pytest.raises(SiteError, match="unreachable") as silent:
            peer.send(Fail(), 0.1)
        assert not isinstance(silent.value, Refused)  # it may be only slow
        assert peer.send(Ping()) == Pong(7)
        hang.set()


def test_peers_go_where_a_site_has_moved() -> None:
    peers = Peers(TOKEN)
    with pytest.raises(SiteError, match="site room1 is unknown here"):
        peers["room1"]
    for answer in ("here", "there"):
        with a_gate(actions={Where: lambda asked, answer=answer: answer}) as gate:
            peers.update({"room1": gate.address})
            assert peers["room1"].send(Where()) == answer
            assert peers["room1"] is peers["room1"]
    peers.close()


# -- the end -------------------------------------------------------------------------------------


def test_shutdown_with_active_followers_is_quick(outlet: LiveOutlet, gate: Gate) -> None:
    outlet.append([numbers(1, 3)], 1)
    peers = [Peer("x", gate.address, TOKEN) for _ in range(3)]
    followers = [
        iter(peer.open(Follow("S", f"c{n}", after=0, epoch=0))) for n, peer in enumerate(peers)
    ]
    for follower in followers:
        next(follower)
    started = time.monotonic()
    outlet.close()
    gate.shutdown()
    assert time.monotonic() - started < 3
    for follower in followers:
        list(follower)


def test_shutdown_does_not_wait_for_a_follower_that_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sender is stuck until the connection breaks; the port is free at once."""
    monkeypatch.setattr("anabranch.link.gate._PATIENCE_S", 0.1)
    outlet = an_outlet(limit=1 << 30)
    outlet.attach("c")
    block = numbers(1, 50_000)
    for _ in range(100):
        outlet.append([block], 1)
    with a_gate(outlet) as gate:
        following = Peer("x", gate.address, TOKEN).open(Follow("S", "c", after=0, epoch=0))
        next(iter(following))
        eventually(lambda: not _moves(lambda: outlet._outlet.consumers["c"].sent))
        started = time.monotonic()
        outlet.close()
        gate.shutdown()
        assert time.monotonic() - started < 2
        Gate(gate.address, TOKEN, {}).shutdown()
        following.cancel()


def _moves(measure: Callable[[], int]) -> bool:
    before = measure()
    time.sleep(0.1)
    return measure() != before


def test_a_port_in_use_is_told_once_and_by_us(capfd: pytest.CaptureFixture[str]) -> None:
    """gRPC would print lines of its own."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SetupError, match=f"cannot listen on {listen}: address already in use"):
            Gate(listen, Credentials("secret"), {})
    assert capfd.readouterr().err == ""


def test_a_fault_of_ours_is_told_alike_inside_and_outside_the_process():
    """Whoever deploys undoes what was begun when it hears an error of ours."""

    def attach(asked: Any) -> float:
        return 1 / 0

    told = pytest.raises(AnabranchError, match="action attach failed: ZeroDivisionError")
    with a_gate(an_outlet(), actions={Attach: attach}) as gate, told:
        LOOP.run(gate.answer(Attach("S", "c"), 10.0))
