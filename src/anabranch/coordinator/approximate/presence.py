"""Which keys there are: when each came, and whether it is still there.

A key is *there* if its worker's last window has it; those that are not are not estimated. One that
has not been there for a while is forgotten: if it comes back, it is new."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from anabranch.coordinator.approximate.results import Key


class Presence:
    """`behind`: how long (µs) a key may be away before it is forgotten. `newest`: the end of the
    last whole window of a worker."""

    def __init__(self, behind: int, newest: Callable[[int], int]) -> None:
        self.homes: dict[Key, int] = {}
        """Key → the worker that delivers it."""
        self._keys: dict[int, set[Key]] = defaultdict(set)
        """By worker."""
        self._behind = behind
        self._newest = newest
        self._first: dict[Key, int] = {}
        self._last: dict[Key, int] = {}

    def belongs(self, key: Key, worker: int) -> None:
        self._keys[self.homes.setdefault(key, worker)].add(key)

    def move(self, key: Key, worker: int) -> None:
        """Another worker delivers it from now on."""
        if key in self.homes:
            self._keys[self.homes.pop(key)].discard(key)
        self.belongs(key, worker)

    def take(self, key: Key, worker: int, end: int) -> None:
        """The worker delivered the key in the window that ends at `end`; may be told again."""
        self.belongs(key, worker)
        last = self._last.get(key)
        if last is None or end > last + self._behind:
            self._first[key] = end
        self._last[key] = end if last is None else max(last, end)

    def hear_again(self, worker: int) -> None:
        """All that there is of this worker's keys is going to be told, oldest first."""
        for key in self._keys[worker] & self._last.keys():
            self._last[key] = -1 - self._behind

    def first(self, key: Key) -> int:
        """The end of the window with which it came."""
        return self._first.get(key, 0)

    def is_there(self, key: Key) -> bool:
        """One of which nothing has been heard, by who was just started, was there."""
        return key not in self._last or self._last[key] >= self._newest(self.homes[key])

    def is_known(self, key: Key) -> bool:
        """It is there, or has not been away for long."""
        last = self._last.get(key)
        return last is None or last + self._behind >= self._newest(self.homes[key])

    def there(self, worker: int) -> list[Key]:
        return [key for key in self._keys[worker] if self.is_there(key)]

    def forget(self, before: int, kept: Iterable[Key]) -> None:
        """What has not come since `before`, but for `kept`."""
        old = {key for key, last in self._last.items() if last < before} - set(kept)
        for key in old:
            self._keys[self.homes.pop(key)].discard(key)
            del self._first[key], self._last[key]
