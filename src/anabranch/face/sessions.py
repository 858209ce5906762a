"""Who is logged in with a browser: a cookie names a session, which is worth nothing elsewhere.

An invitation lets in the first person who opens it. It stands in an address, and addresses are
written down: in logs, in histories. The system's token stands in neither.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from hashlib import sha256

INVITED_S = 3600.0
"""How long an invitation waits for somebody to open it."""
IDLE_S = 12 * 3600.0
"""A session of which nothing is heard for so long has ended."""
MOST = 200
"""Sessions, and invitations; the oldest end when there are more."""


class Sessions:
    """The sessions of one server, as long as it runs."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._invitations: dict[bytes, float] = {}
        self._used: dict[bytes, float] = {}
        """Session → when it was heard of last, the oldest first."""

    def invite(self) -> str:
        """A new invitation, which lets in one browser once."""
        return self._made(self._invitations)

    def accept(self, invitation: str) -> str | None:
        """A new session for the first client who brings the invitation in time; else None."""
        made = self._invitations.pop(_key(invitation), None)
        return None if made is None or self._now() - made > INVITED_S else self.begin()

    def begin(self) -> str:
        """A new session, for a client who has proved that it knows the token."""
        return self._made(self._used)

    def knows(self, session: str) -> bool:
        used = self._used.pop(_key(session), None)
        if used is None or self._now() - used > IDLE_S:
            return False
        self._used[_key(session)] = self._now()
        return True

    def _made(self, where: dict[bytes, float]) -> str:
        name = secrets.token_urlsafe(32)
        where[_key(name)] = self._now()
        while len(where) > MOST:
            where.pop(next(iter(where)))
        return name


def _key(name: str) -> bytes:
    """The key of a name. The time of a look-up then tells nothing about which names exist."""
    return sha256(name.encode()).digest()
