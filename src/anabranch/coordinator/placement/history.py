"""Which samples of the system are kept, and which of them count for what.

The placement paper keeps k samples, each taken long after the one before, since latencies and rates
vary between patterns that recur (4.1, 4.2). So the last k *periods* are kept, each as the mean of
what was sampled in it; with periods of a quarter of an hour, a hundred of them hold a day. Pockets,
which stay, and what is new are placed by all of these. What runs is placed again by the newest
samples (4.5), and by what those periods of earlier days brought that began when the one that comes
next does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.coordinator.base.reports import Sample

DAY_S = 86_400.0
NESTED = ("latency_s", "bandwidth")
FLAT = ("rates", "selectivities", "loads", "standbys", "speeds")
Key = tuple[str, ...]


class SampleHistory:
    """`recent` samples and `periods` of `period_s` seconds by the clock, the oldest first."""

    def __init__(self, recent: int, periods: int, period_s: float) -> None:
        self._most_recent = recent
        self._most_periods = periods
        self._period_s = period_s
        self._recent: list[Sample] = []
        self._periods: list[Sample] = []
        self._now = PeriodMeans()

    def restore(self, recent: Iterable[Sample], periods: Iterable[Sample]) -> None:
        """Restores the history. Only the recent part of the present period is known again."""
        self._periods = list(periods)[-self._most_periods :]
        self._recent = list(recent)[-self._most_recent :]
        if self._recent:
            self._now = PeriodMeans(self._begin(self._recent[-1]))
            for sample in self._recent:
                if self._begin(sample) == self._now.at:
                    self._now.add(sample)

    def add(self, sample: Sample) -> Sample | None:
        """The period that is over, if this one is the first of another."""
        begun = self._begin(sample)
        over = self._now.sample() if self._now.count and self._now.at != begun else None
        if over:
            self._periods = [*self._periods, over][-self._most_periods :]
        if over or not self._now.count:
            self._now = PeriodMeans(begun)
        self._now.add(sample)
        self._recent = [*self._recent, sample][-self._most_recent :]
        return over

    def _begin(self, sample: Sample) -> float:
        return sample.at - sample.at % self._period_s

    @property
    def all(self) -> Sequence[Sample]:
        """All samples, for things that stay where they are put."""
        return (*self._periods, *self._recent)

    @property
    def recent(self) -> Sequence[Sample]:
        return tuple(self._recent)

    @property
    def ahead(self) -> Sequence[Sample]:
        """What the period that comes next was on earlier days."""
        if not self._recent:
            return ()
        now = self._recent[-1].at
        return tuple(one for one in self._periods if 0 <= (one.at - now) % DAY_S < self._period_s)


class PeriodMeans:
    """The means over the samples of a period, each over the samples that have the value."""

    def __init__(self, at: float = 0.0) -> None:
        self.at = at
        self.count = 0
        self._sums: dict[Key, tuple[float, int]] = {}

    def add(self, sample: Sample) -> None:
        self.count += 1
        for key, value in _values(sample):
            total, count = self._sums.get(key, (0.0, 0))
            self._sums[key] = total + value, count + 1

    def sample(self) -> Sample:
        found = Sample(self.at)
        for (name, *path, last), (total, count) in self._sums.items():
            inside = getattr(found, name)
            for part in path:
                inside = inside.setdefault(part, {})
            inside[last] = total / count
        return found


def _values(sample: Sample) -> Iterable[tuple[Key, float]]:
    for name in FLAT:
        for key, value in getattr(sample, name).items():
            yield (name, key), value
    for name in NESTED:
        for sender, receivers in getattr(sample, name).items():
            for receiver, value in receivers.items():
                yield (name, sender, receiver), value
