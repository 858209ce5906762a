"""One binary connection with the JVM, on loopback."""

from __future__ import annotations

import hmac
import secrets
import socket
from contextlib import suppress
from io import BufferedReader
from typing import cast

import pyarrow as pa
from py4j.java_gateway import JavaObject, JVMView

from anabranch.spark.kept.handles import named

_PATIENCE_S = 10.0
_SECRET_BYTES = 32
_BUFFER = 1 << 16
"""Small messages cross in one call each way: after every call this thread waits for its turn among
Python's threads again."""


class Channel:
    """`jvm_side` is a `SocketChannel`; ours reads and writes exactly what it is told to."""

    def __init__(self, jvm: JVMView) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(_PATIENCE_S)
            address = named(jvm, "java.net.InetSocketAddress")(
                "127.0.0.1", listener.getsockname()[1]
            )
            self.jvm_side: JavaObject = named(jvm, "java.nio.channels.SocketChannel").open(address)
            options = named(jvm, "java.net.StandardSocketOptions")
            self.jvm_side.setOption(options.TCP_NODELAY, True)
            secret = secrets.token_bytes(_SECRET_BYTES)
            self.jvm_side.write(named(jvm, "java.nio.ByteBuffer").wrap(secret))
            self._socket = _accepted(listener, secret)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = cast(BufferedReader, self._socket.makefile("rb", buffering=_BUFFER))

    def send(self, *pieces: bytes | pa.Buffer) -> None:
        if sum(map(len, pieces)) < _BUFFER:
            self._socket.sendall(b"".join(pieces))
            return
        for piece in pieces:
            self._socket.sendall(piece)

    def receive_number(self) -> int:
        return int.from_bytes(self.receive(4), "big", signed=True)

    def receive(self, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        got = 0
        while got < size:
            more = self._received.readinto(buffer[got:])
            if not more:
                raise EOFError("the JVM has closed the connection")
            got += more
        return buffer

    def shut(self) -> None:
        """From another thread than the one that reads: whoever sends or waits for an answer is
        woken, and closes it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Whoever sends or waits for an answer is woken."""
        self.shut()
        with suppress(OSError):
            self._received.close()
            self._socket.close()


def _accepted(listener: socket.socket, secret: bytes) -> socket.socket:
    """The connection that knows the secret. Anybody on this machine may have been quicker."""
    while True:
        found, _ = listener.accept()
        found.settimeout(_PATIENCE_S)
        with suppress(OSError):
            told = found.recv(len(secret), socket.MSG_WAITALL)
            if hmac.compare_digest(told, secret):
                found.settimeout(None)
                return found
        found.close()
