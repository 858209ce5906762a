"""Who is logged in with a browser, and how much of a coordinator those who look over HTTP may
take.

An invitation lets in the first person who opens it. It stands in an address, and addresses are
written down: in logs, in histories. The system's token stands in neither.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256

from anabranch.errors import TooMany

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
        begun = self._invitations.pop(_key(invitation), None)
        return None if begun is None or self._now() - begun > INVITED_S else self.begin()

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


MOST_TAILS, MOST_TAILS_EACH = 16, 4
"""A tail is a thread here, and a consumer of its stream at a site."""
TAIL_BYTES = 8_000_000
"""Rows that a tail's reader has not taken; one that is further behind is let go of."""
MOST_EVENTS, MOST_EVENTS_EACH = 128, 32
"""Requests that follow events."""
MOST_REQUESTS = 512
"""Connections and requests at once; who comes then hears 503."""
MOST_BODY = 8_000_000
"""Bytes of a request. A script may have a million characters."""
MOST_LOGIN = 4_000
"""Bytes of a form with a token."""


class Seats:
    """At most `together` at a time, and `each` for one client."""

    def __init__(self, what: str, together: int, each: int) -> None:
        self._what = what
        self._together, self._each = together, each
        self._taken: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, client: str) -> Iterator[None]:
        """A seat for as long as this is open. Raises TooMany if there is none."""
        with self._lock:
            if self._taken[client] >= self._each or self._taken.total() >= self._together:
                raise TooMany(
                    f"there are {self._taken.total()} {self._what} at once,"
                    f" {self._taken[client]} of them from {client}",
                    remedy=f"End one first: {self._each} may come from one address,"
                    f" {self._together} from all.",
                )
            self._taken[client] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[client] -= 1
                self._taken += Counter()  # nobody who has left is remembered
