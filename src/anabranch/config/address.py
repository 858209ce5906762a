"""Where a gate binds or is reached: `127.0.0.1:7101`, `[::1]:7101`, `edge-3.example:7101`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from anabranch.config.problems import problem

_FORM = re.compile(r"(?:\[([^\[\]\s]+)\]|([^\[\]:\s]+)):(\d+)")
_HIGHEST_PORT = 65535


@dataclass(frozen=True)
class HostPort:
    """Port 0 stands for any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than localhost counts as outside."""
        return self._is("is_loopback")

    @property
    def every_interface(self) -> bool:
        """Whether it stands for every interface: one can listen on it but not connect to it."""
        return self._is("is_unspecified")

    def clashes_with(self, other: HostPort) -> bool:
        """Whether both cannot be listened on at the same time on one machine."""
        if self.port != other.port or self.port == 0:
            return False
        everywhere = self.every_interface or other.every_interface
        return everywhere or self._plain_host() == other._plain_host()

    def _is(self, what: str) -> bool:
        try:
            return bool(getattr(ip_address(self._plain_host()), what))
        except ValueError:
            return False

    def _plain_host(self) -> str:
        return "127.0.0.1" if self.host.lower() == "localhost" else self.host.lower()


def read_address(value: Any) -> HostPort:
    """The address that a text stands for."""
    if isinstance(value, HostPort):
        return value
    match = _FORM.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise problem(f"{value!r} is not an address", 'Write it like "127.0.0.1:7101".')
    port = int(match[3])
    if port > _HIGHEST_PORT:
        raise problem(f"port {port} does not exist", f"Ports go from 0 to {_HIGHEST_PORT}.")
    return HostPort(match[1] or match[2], port)


Address = Annotated[HostPort, BeforeValidator(read_address), PlainSerializer(str, return_type=str)]
"""A HostPort written as text in TOML and JSON."""
