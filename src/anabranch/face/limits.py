"""How many places HTTP clients may take of a coordinator, together and each."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.errors import TooMany

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
