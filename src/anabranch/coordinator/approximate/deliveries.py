"""Which windows workers have delivered, by the rows that are in the table; the recovery is told so
in the order of time."""

from __future__ import annotations

from collections import defaultdict

from anabranch.approx.recovery import Recovery
from anabranch.coordinator.approximate.results import Key, Result
from anabranch.plan.approximate import key_text
from anabranch.plan.catalog import ApproximateDef, Generation


class Owners:
    """Whose part of the query a row is, by the query's workers and their generations."""

    def __init__(self, made: ApproximateDef) -> None:
        self._made = made
        self.places = {
            generation.query: (number, place)
            for number, worker in enumerate(made.workers)
            for place, generation in enumerate(worker.generations)
        }
        """Query → its worker, and which generation of that it is."""
        self._assigned = {text: n for n, keys in enumerate(made.assignment) for text in keys}

    def worker_of(self, key: Key, otherwise: int) -> int:
        """To which it is assigned; one that is not is where its hash says."""
        return self._assigned.get(key_text(key), otherwise)

    def of(self, one: Result) -> tuple[int, str]:
        """The worker and its query. While keys are handed over, old and new queries both deliver
        windows from then on; whichever is first, it counts for the new."""
        number, place = self.places[one.stream]
        after = self._after(number, place)
        if after is None or not after.handed or one.end < after.since:
            return number, one.stream
        number = self.worker_of(one.key, number)
        every = reversed(self._made.workers[number].generations)
        return number, next((g.query for g in every if g.since <= one.end), one.stream)

    def _after(self, number: int, place: int) -> Generation | None:
        generations = self._made.workers[number].generations
        return generations[place + 1] if place + 1 < len(generations) else None


class Deliveries:
    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._came: dict[str, dict[int, set[Key]]] = defaultdict(lambda: defaultdict(set))
        self._told: set[tuple[str, int]] = set()

    def add(self, stream: str, one: Result) -> None:
        self._came[stream][one.end].add(one.key)

    def forget(self, before: int) -> None:
        """Windows that end before that."""
        for came in self._came.values():
            for end in [end for end in came if end < before]:
                del came[end]
        self._told = {(stream, end) for stream, end in self._told if end < 0 or end >= before}

    def tell(self, made: ApproximateDef, owners: Owners) -> None:
        """The recovery, what it has not heard. Of queries that keys are being handed over to,
        nothing before that is over: what the old ones deliver may come later."""
        events: list[tuple[int, int, str]] = []
        new = {worker.query for worker in made.workers if worker.generations[-1].handed}
        for stream in owners.places.keys() - (new if made.leaving else set()):
            newest = max(self._came[stream], default=0)
            for end, keys in self._came[stream].items():
                if (stream, end) not in self._told and (end < newest or self._whole(stream, keys)):
                    events.append((end, 0, stream))
        for number, worker in enumerate(made.workers):
            for before, after in zip(worker.generations, worker.generations[1:], strict=False):
                if not after.handed and (after.query, -1) not in self._told:
                    last = max(self._came[before.query], default=0)
                    events.append((last, 1 + number, after.query))
        for end, kind, stream in sorted(events):
            number, place = owners.places[stream]
            self._told.add((stream, -1 if kind else end))
            if kind:
                self._recovery.died(number)
                since = made.workers[number].generations[place].since
                self._recovery.replaced(number, since - made.width_us)
            else:
                self._recovery.delivered(number, end)

    def _whole(self, stream: str, keys: set[Key]) -> bool:
        """Whether these are all of a worker's keys, by what it had before; of its first window
        nobody knows."""
        earlier = [seen for seen in self._came[stream].values() if seen is not keys]
        return bool(earlier) and keys >= set().union(*earlier[-3:])
