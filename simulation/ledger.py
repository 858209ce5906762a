"""What every stream and sink should hold: of each creation of a query, from where it began.

A query that is created while its inputs run reads them from where they are, and so its meaning is
that of what follows there. What depends on when tuples arrived is known once all have: until then
whoever puts out a stream has to give what the others gave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from anabranch.plan.tasks import TaskSpec
from anabranch.stream.restart import RestartPoint
from simulation.clock import Violation
from simulation.given import Given
from simulation.operators import Kind
from simulation.plan import SourceSpec
from simulation.reference import Stream, first_difference, meaning
from simulation.rows import Row

Life = tuple[str, int]
"""A task and its incarnation."""


@dataclass
class Begun:
    """A life: the streams it reads, each with the position behind which it began."""

    kind: Kind | None
    """None for a sink."""
    inputs: tuple[tuple[str, int, int], ...]
    """Stream, the incarnation of its producer, position."""
    rows: Stream | None = None
    given: dict[int, Row] = field(default_factory=dict)
    """What was put out before it was known what should be."""


class Ledger:
    """`incarnation` says which incarnation of a task the catalog has now."""

    def __init__(self, sources: Iterable[SourceSpec], incarnation: Callable[[str], int]) -> None:
        self._sources = {one.name: one for one in sources}
        self._given: dict[tuple[str, int], Given] = {}
        """By stream and creation."""
        self._incarnation = incarnation
        self._kinds: dict[str, Kind] = {}
        """By creation."""
        self._lives: dict[Life, Begun] = {}
        self._written_by: dict[tuple[str, str], Life] = {}
        """Sink task and run → the first life that wrote."""

    def created(self, creation: str, kind: Kind) -> None:
        """A user has said what a query is to do."""
        self._kinds[creation] = kind

    def kind(self, creation: str) -> Kind | None:
        return self._kinds.get(creation)

    def begins(self, spec: TaskSpec, point: RestartPoint) -> Life | None:
        """A task begins, as primary or standby, for the first time or again; None if nobody has
        said what it should do."""
        kind = self._kinds.get(spec.base)
        if kind is None:
            return None
        life = spec.name, point.incarnation
        if life not in self._lives:
            if point.output and spec.output:
                raise Violation(f"{life} goes on behind {point.output}, and has never begun")
            inputs = tuple(
                (source.stream, self._producer(source.stream), after)
                for source, after in zip(spec.inputs, point.inputs, strict=True)
            )
            self._lives[life] = Begun(kind if spec.output else None, inputs)
        if spec.output is None:
            self._written_by.setdefault((spec.name, spec.run), life)
        return life

    def source(self, stream: str, born: int) -> Life:
        """A creation of a source's stream, as its site knows it."""
        self._given.setdefault((stream, born), Given(self._sources[stream]))
        return stream, born

    def needs_nothing(self, life: Life, position: int) -> None:
        """Of a source's stream nobody needs what comes up to there."""
        self._given[life].go_on_after(position)

    def count(self, stream: str) -> int:
        """Tuples that its newest creation has given."""
        return len(self._given[stream, self._producer(stream)].rows)

    def _producer(self, stream: str) -> int:
        if stream not in self._sources:
            return self._incarnation(stream)
        return max((born for name, born in self._given if name == stream), default=0)

    def is_known(self, name: str, incarnation: int) -> bool:
        """What a stream ever holds follows from what its sources have given."""
        if name in self._sources:
            return self._given[name, incarnation].is_known
        begun = self._lives.get((name, incarnation))
        return begun is None or all(self.is_known(one, born) for one, born, _ in begun.inputs)

    def stream(self, name: str, incarnation: int) -> Stream:
        """All that it ever holds, if that is known."""
        if name in self._sources:
            return self._given[name, incarnation].stream
        begun = self._lives.get((name, incarnation))
        if begun is None:  # nobody has begun it, so nothing can have come of it
            return []
        if begun.rows is None:
            assert begun.kind is not None
            inputs = [self.stream(one, born)[after:] for one, born, after in begun.inputs]
            begun.rows = meaning(begun.kind, inputs, begun.inputs[0][2])
        return begun.rows

    def check(
        self, stream: str, life: Life | None, first: int, rows: tuple[Row, ...], watermark: int
    ) -> None:
        """Whoever puts out a stream, in whichever role and epoch, gives a position the same
        tuple."""
        if life is None:
            return
        if given := self._given.get(life):
            given.check(first, rows, watermark)
        elif not rows:
            return
        elif self.is_known(stream, life[1]):
            whole = self.stream(stream, life[1])
            wanted = whole[first - 1 : first - 1 + len(rows)]
            if wanted != list(rows):
                got = dict(enumerate(rows, 1))
                raise Violation(f"stream {stream} from {first} on: {first_difference(got, wanted)}")
        else:
            self._remember(stream, self._lives[life].given, first, rows)

    def _remember(
        self, stream: str, given: dict[int, Row], first: int, rows: tuple[Row, ...]
    ) -> None:
        for position, row in enumerate(rows, first):
            if given.setdefault(position, row) != row:
                raise Violation(
                    f"stream {stream}, position {position}: {given[position]}, then {row}"
                )

    def differences(self) -> Iterator[str]:
        """What was put out, against what should have been, as far as that is known by now."""
        for (name, incarnation), begun in self._lives.items():
            if begun.given and self.is_known(name, incarnation):
                whole = self.stream(name, incarnation)
                for position, row in begun.given.items():
                    if whole[position - 1 : position] != [row]:
                        yield f"stream {name}, position {position}: {row} was put out"

    def sink(self, name: str, run: str) -> Stream | None:
        """What should be in a sink in the end; None as long as that is not known."""
        life = self._written_by.get((name, run))
        if life is None:
            return None
        ((stream, incarnation, after),) = self._lives[life].inputs
        if after:
            raise Violation(f"sink {name} of {run} begins behind {after} of its query")
        if not self.is_known(stream, incarnation):
            return None
        return self.stream(stream, incarnation)
