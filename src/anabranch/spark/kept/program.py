"""A planned query with its inputs, registered with the loops that run it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError

from anabranch.spark.inside import convert_exception
from anabranch.spark.kept.kept_session import KeptSession
from anabranch.spark.kept.leaf import Leaf, empty_batch
from anabranch.spark.kept.loops import DONE, FAILED, KeptLoop
from anabranch.spark.kept.physical import Prepared, Unfit
from anabranch.spark.kept.work import work

_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
INTERPRETED_BELOW = 2_000
"""Rows of one request. For each evaluation Spark writes the source of its projections and orderings
anew, which takes longer than to interpret them for so few."""
_MOMENT_S = 0.1
Inputs = Sequence[Sequence[pa.RecordBatch]]
"""The batches of each input."""
Message = Sequence[bytes | pa.Buffer]


class KeptProgram:
    """`run` by one thread at a time; the rest from any thread."""

    def __init__(
        self, session: KeptSession, leaves: Sequence[Leaf], planned: Prepared, output: JavaObject
    ) -> None:
        handles = session.handles
        physical = planned.executed()
        for leaf in leaves:
            leaf.connect()
        self._session = session
        self.sent: pa.Schema = empty_batch(handles, output).schema
        """The types in which results come."""
        done = work(handles, [leaf.cell for leaf in leaves], physical, output)
        interpreted, compiled = (session.in_a_task(done, compiled=one) for one in (False, True))
        self._few = session.loops.register(interpreted)
        self._many = session.loops.register(compiled)
        self._lock = threading.Lock()
        self._loop: KeptLoop | None = None
        self.abandoned = self._closed = False

    def run(self, requests: Sequence[Inputs]) -> Iterator[list[pa.RecordBatch]]:
        """The results of each; the JVM works on the next one meanwhile."""
        if self.abandoned:  # what it left behind may still be at it
            raise Unfit("an evaluation of it was given up")
        messages = map(self._message, requests)
        with (
            self._session.loops.lent() as loop,
            self._running(loop),
            _sending(loop, messages, alone=len(requests) == 1),
        ):
            for _ in requests:
                yield list(self._answer(loop))

    @contextmanager
    def _running(self, loop: KeptLoop) -> Iterator[None]:
        self._loop = loop
        try:
            yield
        finally:
            with self._lock:  # whoever interrupts means this one, and none that comes after it
                self._loop = None

    def _message(self, inputs: Inputs) -> Message:
        rows = sum(batch.num_rows for batches in inputs for batch in batches)
        pieces: list[bytes | pa.Buffer] = [self._few if rows < INTERPRETED_BELOW else self._many]
        for batches in inputs:
            pieces += [*(batch.serialize() for batch in batches), _END_OF_STREAM]
        return pieces

    def _answer(self, loop: KeptLoop) -> Iterator[pa.RecordBatch]:
        channel = loop.channel
        while (size := channel.receive_number()) not in (DONE, FAILED):
            yield pa.ipc.read_record_batch(pa.py_buffer(channel.receive(size)), self.sent)
        if size == FAILED:
            raise convert_exception(loop.failure())

    def interrupt(self) -> None:
        """What is being evaluated fails soon."""
        with self._lock:
            if self._loop:
                self._loop.interrupt()

    def abandon(self) -> None:
        """Without asking the JVM: what is being evaluated fails now, whatever the JVM goes on to
        do. Nothing can be evaluated after it."""
        # Whoever holds it for long asks a JVM that does not answer, and the loop stays ours.
        held = self._lock.acquire(timeout=_MOMENT_S)
        try:
            if self._loop:
                self.abandoned = True
                self._loop.abandon()
        finally:
            if held:
                self._lock.release()

    def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            for key in (self._few, self._many):
                with suppress(Py4JError, OSError):
                    self._session.loops.remove(key)


@contextmanager
def _sending(loop: KeptLoop, messages: Iterable[Message], *, alone: bool) -> Iterator[None]:
    """The messages are on their way. One alone the JVM reads whole before it answers, so it can be
    sent at once; several are sent while answers are read."""
    if alone:
        for message in messages:
            loop.channel.send(*message)
        yield
        return
    sender = threading.Thread(target=_send_quietly, args=(loop, messages), daemon=True)
    sender.start()
    try:
        yield
    except BaseException:
        loop.channel.close()
        raise
    finally:
        sender.join()


def _send_quietly(loop: KeptLoop, messages: Iterable[Message]) -> None:
    """Whoever reads the answers sees that the connection has broken."""
    with suppress(OSError):
        for message in messages:
            loop.channel.send(*message)
