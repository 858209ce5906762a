"""Strangers at a port: they cost little, whatever they send, and are shown out."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from anabranch.errors import SiteError
from anabranch.link.door import LONG_BYTES, UNPROVED_BYTES, Door
from anabranch.link.gate import Credentials
from anabranch.link.message import Bring
from anabranch.link.messages import Push
from anabranch.link.peer import Peer

LONG = 256 << 20


@dataclass(frozen=True, slots=True)
class Rows(Bring[None]):
    """A table without a meaning."""


_SERVES = """
import sys
from anabranch.link.gate import Credentials, Gate
from anabranch.link.messages import Push
measure = {Push: lambda asked: len(asked.rows) == int(asked.stream)}
gate = Gate("127.0.0.1:0", Credentials("right"), measure)
print(gate.address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[tuple[psutil.Process, str]]:
    """A process, and the address of its gate."""
    command = [sys.executable, "-c", _SERVES]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout
        yield psutil.Process(one.pid), one.stdout.readline().strip()
        one.kill()


@pytest.mark.parametrize("kind", ["action", "ticket"])
def test_what_comes_without_the_token_is_not_taken_into_memory(
    elsewhere: tuple[psutil.Process, str], kind: str
) -> None:
    process, address = elsewhere
    with flight.connect(f"grpc://{address}") as client, _Peak(process) as peak:
        wrong = [(b"authorization", b"Bearer wrong")]
        options = flight.FlightCallOptions(headers=wrong, timeout=60)
        body = bytes(LONG)
        calls = {
            "action": lambda: next(client.do_action(flight.Action("ping", body), options)),
            "ticket": lambda: client.do_get(flight.Ticket(body), options),
        }
        with pytest.raises((flight.FlightError, pa.ArrowException)) as refused:
            calls[kind]()
    assert not isinstance(refused.value, flight.FlightUnauthenticatedError)  # it was not read
    assert peak.more < LONG


def test_a_table_that_comes_without_the_token_is_refused_before_it_is_read(
    elsewhere: tuple[psutil.Process, str],
) -> None:
    process, address = elsewhere
    table = pa.table({"a": [bytes(LONG)]})
    with _Peak(process) as peak, pytest.raises(SiteError):
        Peer("there", address, Credentials("wrong")).bring(Rows(), table, 60)
    assert peak.more < LONG


def test_what_is_short_is_answered_that_the_token_is_wrong(
    elsewhere: tuple[psutil.Process, str],
) -> None:
    with flight.connect(f"grpc://{elsewhere[1]}") as client:
        for header in ([], [(b"authorization", b"Bearer wrong")]):
            options = flight.FlightCallOptions(headers=header, timeout=60)
            with pytest.raises(flight.FlightUnauthenticatedError):
                next(client.do_action(flight.Action("status", b"{}"), options))


@dataclass
class _Peak:
    """How much more memory a process has had meanwhile, at most, than before."""

    process: psutil.Process
    more: int = 0

    def __enter__(self) -> _Peak:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")  # the peak begins anew
        self._before = self._highest()
        return self

    def __exit__(self, *error: object) -> None:
        self.more = self._highest() - self._before

    def _highest(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        (line,) = (one for one in lines if one.startswith("VmHWM"))
        return int(line.split()[1]) << 10


def test_long_messages_of_who_knows_the_token_arrive(
    elsewhere: tuple[psutil.Process, str],
) -> None:
    _, address = elsewhere
    for size in (LONG_BYTES - 100, LONG_BYTES, UNPROVED_BYTES, 8 << 20):
        peer = Peer("there", address, Credentials("right"))
        assert peer.send(Push(str(size), "x" * size))
        peer.close()


class Echo:
    """A server that answers what it is sent, a line at a time."""

    def __init__(self, listener: socket.socket, door: Door) -> None:
        self._listener, self._door = listener, door
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                serving = self._listener.accept()
                threading.Thread(target=self._serve, args=serving, daemon=True).start()

    def _serve(self, one: socket.socket, address: tuple[str, int]) -> None:
        with one, one.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                if line == b"token\n":
                    self._door.proved(address)
                one.sendall(line)


@pytest.fixture(params=["127.0.0.1", "::1"])
def at_the_door(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """Where a stranger is cut off after half a second, or when there are three."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as listener:
        address = listener.getsockname()[:2]
        door = Door(address[1], seconds=0.5, most=3)
        Echo(listener, door)
        yield address
        door.close()


def said(one: socket.socket, line: bytes) -> bytes:
    """The answer; nothing from who has cut us off."""
    with suppress(OSError):
        one.settimeout(30)
        one.sendall(line)
        return one.recv(1000)
    return b""


def let_in(at: tuple[str, int], connected: ExitStack) -> socket.socket:
    """A connection that has said the token. On a busy machine the first was perhaps too slow."""
    while True:
        one = connected.enter_context(socket.create_connection(at))
        if said(one, b"token\n") == b"token\n":
            return one


def test_who_proves_nothing_is_cut_off_and_who_has_proved_it_is_not(
    at_the_door: tuple[str, int],
) -> None:
    with ExitStack() as connected:
        known = let_in(at_the_door, connected)
        silent, wrong = (
            connected.enter_context(socket.create_connection(at_the_door)) for _ in range(2)
        )
        wrong.sendall(b"wrong\n")
        for one in (silent, wrong):
            one.settimeout(30)
            with suppress(ConnectionResetError):
                while one.recv(1000):
                    pass
        for _ in range(8):  # more than a stranger may send
            assert said(known, b"x" * (UNPROVED_BYTES // 4) + b"\n").startswith(b"x")


def test_of_many_strangers_the_oldest_are_cut_off(at_the_door: tuple[str, int]) -> None:
    with ExitStack() as connected:
        known = let_in(at_the_door, connected)
        strangers = []
        for _ in range(20):
            strangers.append(connected.enter_context(socket.create_connection(at_the_door)))
            let_in(at_the_door, connected)  # there is always room for who knows it
        for one in strangers:
            one.settimeout(30)
            with suppress(ConnectionResetError):
                assert one.recv(1) == b""
        assert said(known, b"still\n") == b"still\n"


def test_a_stranger_that_says_much_is_cut_off(at_the_door: tuple[str, int]) -> None:
    with socket.create_connection(at_the_door) as one:
        one.settimeout(30)
        with suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(10_000):
                one.sendall(b"x" * 65_536)
            pytest.fail("600 MB were taken")
