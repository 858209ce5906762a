"""What an outlet sees of its traffic over the last seconds, and how many bytes go to consumers
and to standbys.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Any

from pydantic import model_validator

from anabranch.link.message import INLINE, gathered
from anabranch.stream.batch import Batch

_NEW = 0.25


@dataclass
class Traffic:
    """Bytes sent to primary consumers and to standbys: before compression, and as they went over
    the wire.
    """

    primary: int = 0
    shipped: int = 0
    packed: int = 0
    tuples: int = 0
    ratio: float = 1.0
    """Of compression, over the last few shipments: it varies with their size."""

    def sent(self, batch: Batch[Any]) -> None:
        self.primary += batch.nbytes if batch.rows else 0

    def shipped_as(self, batch: Batch[Any], nbytes: int) -> None:
        if batch.rows:
            ratio, weight = nbytes / batch.nbytes, _NEW if self.tuples else 1.0
            self.ratio += weight * (ratio - self.ratio)
            self.shipped += batch.nbytes
            self.packed += nbytes
            self.tuples += batch.rows


WINDOW_S = 2.0
ACKS = 4
OLDEST_S = 20.0
"""The newest so many acks are looked at, however far apart they are: windows of ten minutes release
something every ten minutes. They say nothing any more if none has come for as long as three should
have taken, and this long."""


@dataclass(frozen=True, slots=True)
class Releases:
    """How kept tuples of a consumer are released: how often, how many are left then and how much
    that varies, and for each release, how many tuples had come since the one before and how many
    were left.
    """

    ack_interval_s: float
    left: float
    left_spread: float
    acks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Flow:
    """The traffic to a consumer: tuples a second, bytes a tuple, tuples of a batch that was
    appended, the fraction of the bytes that is left once compressed, and how many tuples are kept
    for it now. `releases` is set once enough have been measured.
    """

    rate: float
    tuple_bytes: float
    chunk: float
    releases: Releases | None = field(default=None, metadata=INLINE)
    ratio: float = 1.0
    held: int = 0

    _gathered = model_validator(mode="before")(gathered("releases", "acks"))


class Meter:
    """The caller gives times, in seconds of any one clock."""

    def __init__(self) -> None:
        self._appended: deque[tuple[float, int, int]] = deque()
        self._released: dict[str, deque[tuple[float, int, int]]] = {}

    def appended(self, now: float, rows: int, nbytes: int) -> None:
        if rows:
            self._appended.append((now, rows, nbytes))
            _forget(self._appended, now)

    def released(self, now: float, consumer: str, left: int, last: int) -> None:
        """Takes note that an ack has released some of the consumer's tuples and left `left` others,
        the last of which is `last`.
        """
        acks = self._released.setdefault(consumer, deque())
        acks.append((now, left, last))
        _forget(acks, now, ACKS)

    def report(self, now: float, consumer: str) -> Flow | None:
        """The measured flow; None while nothing comes at all."""
        _forget(self._appended, now)
        acks = self._released.get(consumer, deque())
        _forget(acks, now, ACKS)
        rows = sum(n for _, n, _ in self._appended)
        if rows == 0:
            return None
        return Flow(
            rate=rows / WINDOW_S,
            tuple_bytes=sum(size for _, _, size in self._appended) / rows,
            chunk=rows / len(self._appended),
            releases=self._releases(now, acks),
        )

    def _releases(self, now: float, acks: deque[tuple[float, int, int]]) -> Releases | None:
        if len(acks) < ACKS - 1:
            return None
        interval_s = (acks[-1][0] - acks[0][0]) / (len(acks) - 1)
        if now - acks[-1][0] > max(OLDEST_S, 3 * interval_s):
            return None
        left = [n for _, n, _ in acks]
        came = [now - before for (_, _, before), (_, _, now) in pairwise(acks)]
        spread = 1.7 * pstdev(left)  # of a uniform distribution
        acks_told = tuple(zip(came, left[1:], strict=True))
        return Releases(interval_s, fmean(left), spread, acks_told)


def _forget(events: deque[tuple[float, int, int]], now: float, keep: int = 0) -> None:
    while len(events) > keep and events[0][0] < now - WINDOW_S:
        events.popleft()


CATCH_UP_S = 20.0
"""What happened in so long says how quick it is."""


class Lag:
    """How far one reader lags, looked at now and then: how many tuples it lacks."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def see(self, now: float, lacks: int) -> None:
        self._seen.append((now, lacks))
        while now - self._seen[0][0] > CATCH_UP_S and len(self._seen) > 2:
            self._seen.popleft()

    @property
    def left_s(self) -> float | None:
        """The seconds that it still needs at this pace; None if nobody knows, or it does not catch
        up.
        """
        (begin, before), (end, lacks) = self._seen[0], self._seen[-1]
        gained = before - lacks
        return lacks * (end - begin) / gained if gained > 0 and end > begin else None
