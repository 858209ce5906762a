"""Runs a script of the protocol and writes down what each line of it does.

A script has an outlet, consumers with an inlet each, and standbys of them. What is sent travels at
once, or is lost where the line says so. A line that begins with `>` is what happens; those after it
say what comes of it: what is sent or refused, and how things stand where that has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from anabranch.errors import AnabranchError
from anabranch.standby.secondary import Claim, Feed, Secondary
from anabranch.stream.batch import START_WATERMARK, Batch
from anabranch.stream.inlet import Inlet
from anabranch.stream.outlet import Outlet
from anabranch.stream.restart import RestartPoint
from tests.stream.rows import Rows, rows

MARK = "> "


class Trace:
    def __init__(self) -> None:
        self._outlet: Outlet[Rows] = Outlet("S")
        self._inlets: dict[str, Inlet[Rows]] = {}
        self._epochs: dict[str, int] = {}
        self._standbys: dict[str, tuple[Secondary[Rows], int]] = {}
        self._shown: dict[str, str] = {}
        self._state()

    def run(self, script: str) -> str:
        """The script with what comes of it, whatever stood there before."""
        lines = script.splitlines()
        return "\n".join(line for step in lines for line in self._lines(step)) + "\n"

    def _lines(self, line: str) -> Iterator[str]:
        if line.startswith("#") or not line:
            yield line
        elif line.startswith(MARK):
            yield line
            yield from self._done(line.removeprefix(MARK).split())

    def _done(self, words: list[str]) -> Iterator[str]:
        command: Callable[..., Iterator[str]] = getattr(self, f"_do_{words[0].replace('-', '_')}")
        named = dict(word.split("=") for word in words[1:] if "=" in word)
        try:
            for said in command(*(w for w in words[1:] if "=" not in w), **named):
                yield f"    {said}"
        except AnabranchError as error:
            yield f"    {type(error).__name__}: {error.line()}"
        yield from self._state()

    # -- the producer ----------------------------------------------------------------------------

    def _do_produce(self, count: str, watermark: str) -> Iterator[str]:
        """So many tuples, with the watermark that holds after them."""
        self._outlet.append(rows(*[int(watermark)] * int(count)), int(watermark))
        yield from ()

    def _do_producer(self, epoch: str, after: str = "0") -> Iterator[str]:
        """Another produces the stream from now on, with nothing kept and no reader known."""
        self._outlet = Outlet("S", int(after), int(epoch))
        yield from ()

    # -- consumers -------------------------------------------------------------------------------

    def _do_attach(self, name: str, after: str = "", epoch: str = "0") -> Iterator[str]:
        start = self._outlet.attach(name, after=int(after) if after else None, epoch=int(epoch))
        self._epochs[name] = int(epoch)
        self._inlets.setdefault(name, Inlet("S", start))
        yield f"{name} reads after {start}"

    def _do_restart(self, name: str, after: str, epoch: str = "0") -> Iterator[str]:
        """The consumer begins again, with nothing, after a position."""
        self._inlets[name], self._epochs[name] = Inlet("S", int(after)), int(epoch)
        yield from ()

    def _do_send(self, name: str, lost: str = "") -> Iterator[str]:
        """What the consumer has not, in a batch; it arrives unless it is `lost=yes`."""
        inlet = self._inlets[name]
        batch = self._outlet.read(inlet.received)
        if batch is None:
            yield "nothing to send"
            return
        self._outlet.sent(name, batch.last)
        yield f"{_shown(batch)}{' is lost' if lost else ''}"
        if not lost:
            yield f"{name} takes {inlet.offer(batch)} of them"

    def _do_replay(self, name: str, first: str, count: str, epoch: str) -> Iterator[str]:
        """A batch of an earlier connection, or of a producer that was replaced, arrives now."""
        inlet = self._inlets[name]
        batch = Batch("S", int(first), inlet.watermark, int(epoch), rows(*[0] * int(count)))
        yield f"{name} takes {inlet.offer(batch)} of them"

    def _do_received(self, name: str) -> Iterator[str]:
        """The consumer says what it has: a level-0 ack."""
        inlet = self._inlets[name]
        self._outlet.level0(name, inlet.received, inlet.epoch, self._epochs[name])
        yield from ()

    def _do_needs(self, name: str, nothing_up_to: str, output: str) -> Iterator[str]:
        """The consumer says what it would restart from: a level-1 ack."""
        point = RestartPoint((int(nothing_up_to),), int(output))
        self._outlet.level1(name, int(nothing_up_to), point, self._epochs[name])
        yield from ()

    def _do_detach(self, name: str) -> Iterator[str]:
        self._outlet.detach(name)
        del self._inlets[name]
        yield from ()

    # -- standbys --------------------------------------------------------------------------------

    def _do_stand_by(self, name: str, epoch: str, batch: str, after: str = "0") -> Iterator[str]:
        """A standby of the consumer, which would be primary in `epoch`."""
        self._outlet.back_up(name, int(epoch), int(batch), int(after))
        self._standbys[name] = Secondary(RestartPoint((int(after),), 0)), int(epoch)
        yield from ()

    def _do_ship(self, name: str) -> Iterator[str]:
        standby, epoch = self._standbys[name]
        due = self._outlet.due(name, epoch)
        if due is None:
            yield "less than a batch is due"
            return
        self._outlet.shipped(name, epoch, due.last)
        yield f"{due.after + 1} to {due.last} are shipped"
        point = due.point
        for batch in self._cut(due.after, due.last):
            sent = Batch("S", batch.first, batch.watermark, batch.epoch, batch.data, point)
            yield from map(_action, standby.offer(0, sent))
            point = None

    def _cut(self, after: int, last: int) -> Iterator[Batch[Rows]]:
        """The watermark of a batch that is cut does not hold yet."""
        watermark = START_WATERMARK
        while after < last and (batch := self._outlet.read(after)):
            if batch.last > last:
                batch = batch.head(last - after, watermark)
            yield batch
            after, watermark = batch.last, batch.watermark

    def _do_take_over(self, name: str) -> Iterator[str]:
        standby, epoch = self._standbys.pop(name)
        state = self._outlet.fence(name, epoch)
        assert state is not None
        claim = Claim(state.released, state.restart)
        yield f"claimed: released up to {claim.released}"
        yield from map(_action, standby.take_over([claim]))
        (position,) = standby.received
        self._inlets[name], self._epochs[name] = Inlet("S", position), epoch
        yield f"the standby is {name} now, and reads after {position}"

    # -- how things stand ------------------------------------------------------------------------

    def _state(self) -> Iterator[str]:
        """What has changed since it was last shown."""
        now = {"outlet": self._of_outlet()}
        for name, one in self._outlet.consumers.items():
            now[name] = f"received {one.received}, needs nothing up to {one.released}" + (
                f", epoch {one.epoch}" if one.epoch else ""
            )
        for name, (standby, _) in self._standbys.items():
            now[f"standby of {name}"] = f"received {standby.received[0]}, keeps {standby.kept}"
        changed = [
            f"    {what}: {how}" for what, how in now.items() if self._shown.get(what) != how
        ]
        self._shown = now
        return iter(changed)

    def _of_outlet(self) -> str:
        one = self._outlet
        kept = f"keeps {one.released + 1} to {one.last}" if one.kept_bytes else "keeps nothing"
        return f"{kept}, last {one.last}, epoch {one.epoch}"


def _shown(batch: Batch[Rows]) -> str:
    return f"{batch.first} to {batch.last} of epoch {batch.epoch}, watermark {batch.watermark}"


def _action(action: object) -> str:
    if isinstance(action, Feed):
        return f"standby is fed {action.batch.first} to {action.batch.last}"
    kept = [batch for (batches) in action.kept for batch in batches]  # type: ignore[attr-defined]
    spans = ", ".join(f"{one.first} to {one.last}" for one in kept) or "nothing"
    point = action.point  # type: ignore[attr-defined]
    return (
        f"standby begins anew: input after {point.inputs[0]}, output after {point.output}; {spans}"
    )
