"""The door of a port: a client must prove soon, and before it has sent much, that it knows the
token.

Servers take in what is sent before they let anybody look at it: gRPC a whole request, however long,
and any of them a connection that says nothing. So this module watches the connections of the port
from the side, in the list of this process's open files, and cuts off those that prove nothing.
"""

from __future__ import annotations

import hmac
import os
import socket
import stat
import struct
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from ipaddress import ip_address
from urllib.parse import unquote

import pyarrow.flight as flight

from anabranch.runtime.loop import supervised

UNPROVED_BYTES = 64 << 10
"""So much may come before the token."""
LONG_BYTES = UNPROVED_BYTES // 4
"""Who sends more than that in one message calls PROVE first: the connection may be a new one."""
PROVE = "prove"
"""The action that does nothing."""
UNPROVED_S = 10.0
MOST_UNPROVED = 64
"""Of more at once the oldest are cut off: who knows the token has said so within milliseconds."""
_LOOK_S, _CLOSE_LOOK_S = 0.1, 0.01
"""Between two looks; and while there is somebody who has proved nothing."""
_FILES = "/proc/self/fd"
_RECEIVED_AT = 128
"""Where `struct tcp_info` has the number of bytes that have come."""

Address = tuple[str, int]
Open = tuple[int, int]
"""An open socket of this process: the numbers of the file and of its inode."""


class TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]  # Arrow says no types
    """The check of a Flight server: no call without the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = f"Bearer {token}".encode()

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[str]]) -> None:
        given = next(iter(headers.get("authorization", ())), "")
        if not hmac.compare_digest(given.encode(errors="replace"), self._expected):
            raise flight.FlightUnauthenticatedError("wrong or missing token")


class Door:
    """The door of one TCP port that this process listens on already, until closed. `most_bytes` is
    None where the server itself reads no more than it is asked for.
    """

    def __init__(
        self,
        port: int,
        *,
        most_bytes: int | None = UNPROVED_BYTES,
        seconds: float = UNPROVED_S,
        most: int = MOST_UNPROVED,
    ) -> None:
        self.port = port
        self._most_bytes, self._seconds, self._most = most_bytes, seconds, most
        self._since: dict[Open, float] = {}
        """Connections that have proved nothing yet, and since when they are known."""
        _WATCH.begin(self)

    def proved(self, address: Address | str) -> None:
        """Takes note that the client at this address knows the token. It is called for every
        request.
        """
        _WATCH.said.append(_of_grpc(address) if isinstance(address, str) else _plain(address))

    def close(self) -> None:
        _WATCH.end(self)

    def look(
        self, strangers: Mapping[Open, socket.socket], said: Collection[Address], now: float
    ) -> set[Open]:
        """Looks at the strangers; returns those that have proved themselves."""
        proved = {one for one, there in strangers.items() if _other_end(there) in said}
        self._since = {one: self._since.get(one, now) for one in strangers.keys() - proved}
        oldest = sorted(self._since, key=lambda one: (self._since[one], one[1]))
        surplus = len(oldest) - self._most
        for place, stranger in enumerate(oldest):
            late = now - self._since[stranger] > self._seconds
            if place < surplus or late or self._has_sent_much(strangers[stranger]):
                _cut_off(strangers[stranger])
        return proved

    @property
    def waits(self) -> bool:
        """Whether it waits for somebody's proof."""
        return bool(self._since)

    def _has_sent_much(self, connection: socket.socket) -> bool:
        if self._most_bytes is None:
            return False
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + 8)
        (received,) = struct.unpack_from("=Q", info, _RECEIVED_AT)
        return bool(received > self._most_bytes)


class _Watch:
    """Watches all doors of this process, in one thread."""

    def __init__(self) -> None:
        self.said: deque[Address] = deque()
        """Who has proved it since the last look."""
        self._doors: dict[int, Door] = {}
        self._proved: set[Open] = set()
        self._others: set[Open] = set()
        """What is no connection to a door."""
        self._changed = threading.Condition()
        self._running = False

    def begin(self, door: Door) -> None:
        with self._changed:
            self._doors[door.port] = door
            self._others.clear()
            self._changed.notify()
            if not self._running:
                self._running = True
                supervised("doors", self._run).start()

    def end(self, door: Door) -> None:
        with self._changed:
            if self._doors.get(door.port) is door:
                del self._doors[door.port]

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._doors)
                self._look(time.monotonic())
                closely = any(door.waits for door in self._doors.values())
            time.sleep(_CLOSE_LOOK_S if closely else _LOOK_S)

    def _look(self, now: float) -> None:
        said = {self.said.popleft() for _ in range(len(self.said))}
        sockets = set(_open_sockets())  # whoever has said it until now among them
        self._proved &= sockets
        self._others &= sockets
        strangers: dict[int, dict[Open, socket.socket]] = {port: {} for port in self._doors}
        with ExitStack() as handles:
            for place in sockets - self._proved - self._others:
                handle = _handle(place)
                port = _port(handle) if handle else 0
                if handle and port in strangers and not _listens(handle):
                    strangers[port][place] = handles.enter_context(handle)
                    continue
                if handle:
                    handle.close()
                self._others.add(place)
            for port, door in self._doors.items():
                self._proved |= door.look(strangers[port], said, now)


_WATCH = _Watch()


def _open_sockets() -> Iterator[Open]:
    for name in os.listdir(_FILES):
        try:
            status = os.fstat(int(name))
        except OSError:
            continue
        if stat.S_ISSOCK(status.st_mode):
            yield int(name), status.st_ino


def _handle(place: Open) -> socket.socket | None:
    """A second handle of an open TCP socket; None if it is another file or was closed meanwhile."""
    try:
        own = os.dup(place[0])
    except OSError:
        return None
    try:
        handle = socket.socket(fileno=own)
    except OSError:
        os.close(own)
        return None
    if handle.family in (socket.AF_INET, socket.AF_INET6) and handle.type == socket.SOCK_STREAM:
        return handle
    handle.close()
    return None


def _port(connection: socket.socket) -> int:
    try:
        return int(connection.getsockname()[1])
    except OSError:
        return 0


def _listens(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _cut_off(place: socket.socket) -> None:
    """Cuts the connection off. Its server notices the end and closes it; the kernel then keeps
    nothing of it.
    """
    with suppress(OSError):  # it ends by itself
        place.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        place.shutdown(socket.SHUT_RDWR)


def _other_end(connection: socket.socket) -> Address | None:
    try:
        return _plain(connection.getpeername())
    except OSError:
        return None


def _of_grpc(peer: str) -> Address:
    """The address in `ipv4:127.0.0.1:4711` or `ipv6:%5B::1%5D:4711`."""
    host, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return _plain((host.strip("[]"), int(port or 0)))


def _plain(address: tuple[object, ...]) -> Address:
    """The address in one form, however it was written."""
    host, port = str(address[0]).partition("%")[0], int(str(address[1]))
    try:
        address_ = ip_address(host)
    except ValueError:
        return host, port
    mapped = getattr(address_, "ipv4_mapped", None)
    return str(mapped or address_), port
