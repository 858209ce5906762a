"""Machines that can be cut off without a word: network namespaces behind one bridge.

A process that is killed refuses connections, and so does an interface that is taken down. A cut
here drops packets: they go to a hardware address that nobody has. Needs root and `ip`; nothing of
it is left when it is closed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress

from anabranch.errors import SetupError

_NOBODY = "02:00:00:00:00:01"
_numbers = itertools.count()


def possible() -> bool:
    """Whether this process may make namespaces."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return False
    with suppress(subprocess.CalledProcessError):
        name = f"anabranch-try-{os.getpid()}"
        _ip("netns", "add", name)
        _ip("netns", "del", name)
        return True
    return False


class Machines:
    """One for each name, with an address; the process that makes them has `address` itself."""

    def __init__(self, names: Iterable[str]) -> None:
        if not possible():
            raise SetupError("network namespaces need root and the program ip")
        number = os.getpid() % 200 * 250 + next(_numbers)
        self._net = f"10.{70 + number // 250 % 150}.{number % 250}"
        self._tag = f"{os.getpid()}x{number % 250}"
        self._bridge = f"ab{self._tag}"[:15]
        self.address = f"{self._net}.1"
        self.names = list(names)
        self._made: list[str] = []
        try:
            _ip("link", "add", self._bridge, "type", "bridge", "forward_delay", "0")
            _ip("address", "add", f"{self.address}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for name in self.names:
                self._make(name)
        except BaseException:
            self.close()
            raise

    def _make(self, name: str) -> None:
        space, port = self.space(name), self._port(name)
        _ip("netns", "add", space)
        self._made.append(space)
        _ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", port, "master", self._bridge)
        _ip("link", "set", port, "up")
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "address", "add", f"{self.address_of(name)}/24", "dev", "eth0")

    def space(self, name: str) -> str:
        return f"ab-{self._tag}-{name}"

    def address_of(self, name: str) -> str:
        return f"{self._net}.{self.names.index(name) + 2}"

    def _port(self, name: str) -> str:
        return f"ab{self._tag}p{self.names.index(name)}"[:15]

    def within(self, name: str) -> list[str]:
        """What comes before a command to have it run on that machine."""
        return ["ip", "netns", "exec", self.space(name)]

    def cut(self, name: str) -> None:
        """Nothing goes to it or comes from it; nobody is told."""
        self.mute(name)
        self.deafen(name)

    def mute(self, name: str) -> None:
        """Nothing that it sends arrives."""
        for other in self._others(name):
            self._misdirect(name, other)

    def deafen(self, name: str) -> None:
        """Nothing arrives that is sent to it."""
        for other in self._others(name):
            self._misdirect(other, name)

    def heal(self, name: str) -> None:
        for other in self._others(name):
            for sender, receiver in ((name, other), (other, name)):
                with suppress(subprocess.CalledProcessError):  # nothing was misdirected
                    _ip(*self._neighbour("del", sender, receiver))

    def _others(self, name: str) -> list[str]:
        """All machines but it; the empty name is this process's."""
        return ["", *(one for one in self.names if one != name)]

    def _misdirect(self, sender: str, receiver: str) -> None:
        command = self._neighbour("replace", sender, receiver)
        _ip(*command, "lladdr", _NOBODY, "nud", "permanent")

    def _neighbour(self, what: str, sender: str, receiver: str) -> list[str]:
        space = ["-n", self.space(sender)] if sender else []
        device = "eth0" if sender else self._bridge
        address = self.address_of(receiver) if receiver else self.address
        return [*space, "neighbour", what, address, "dev", device]

    def close(self) -> None:
        """Idempotent. Processes inside are ended by whoever has started them."""
        while self._made:
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "del", self._made.pop())
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._bridge)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
