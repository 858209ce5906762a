"""What every stream and sink should hold: of each creation of a query, from where it began.

A query that is created while its inputs run reads them from where they are, and so its meaning is
that of what follows there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from anabranch.plan.tasks import TaskSpec
from anabranch.stream.restart import RestartPoint
from simulation.clock import Violation
from simulation.operators import Kind
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


class Ledger:
    """`incarnation` says which incarnation of a task the catalog has now."""

    def __init__(
        self, sources: Mapping[str, tuple[Row, ...]], incarnation: Callable[[str], int]
    ) -> None:
        self._sources = {name: list(rows) for name, rows in sources.items()}
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

    def _producer(self, stream: str) -> int:
        return 0 if stream in self._sources else self._incarnation(stream)

    def stream(self, name: str, incarnation: int) -> Stream:
        """All that it ever holds."""
        if name in self._sources:
            return self._sources[name]
        begun = self._lives.get((name, incarnation))
        if begun is None:  # nobody has begun it, so nothing can have come of it
            return []
        if begun.rows is None:
            assert begun.kind is not None
            inputs = [self.stream(one, born)[after:] for one, born, after in begun.inputs]
            begun.rows = meaning(begun.kind, inputs, begun.inputs[0][2])
        return begun.rows

    def check(self, stream: str, life: Life | None, first: int, rows: tuple[Row, ...]) -> None:
        """Whoever puts out a stream, in whichever role and epoch, gives a position the same
        tuple."""
        if stream not in self._sources and life is None:
            return
        whole = self.stream(stream, life[1] if life else 0)
        wanted = whole[first - 1 : first - 1 + len(rows)]
        if wanted != list(rows):
            got = dict(enumerate(rows, 1))
            raise Violation(f"stream {stream} from {first} on: {first_difference(got, wanted)}")

    def sink(self, name: str, run: str) -> Stream | None:
        """What should be in a sink in the end; None before it has begun."""
        life = self._written_by.get((name, run))
        if life is None:
            return None
        ((stream, incarnation, after),) = self._lives[life].inputs
        if after:
            raise Violation(f"sink {name} of {run} begins behind {after} of its query")
        return self.stream(stream, incarnation)
