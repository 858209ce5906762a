"""Follows one stream in the background, through broken connections, for the program that reads
it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress

import numpy as np
import pyarrow as pa

from anabranch.api.client import Client
from anabranch.errors import AnabranchError, Gap, SiteError, TaskError
from anabranch.link.messages import Ack, Acks, Attach, Detach, Follow
from anabranch.link.peer import Peer, RemoteStream
from anabranch.link.wire import BORN, EVENT_TIME, POSITION
from anabranch.stream.batch import END_WATERMARK, Batch

AHEAD_BYTES = 8_000_000
"""What is fetched before it is read."""
SPARE_BYTES = 64_000_000
"""The same for results that a sink takes too, and that must not wait for us."""
ACK_S = 0.1
ASK_S = 2.0
LOOK_S = 1.0
"""How often a stream that brings nothing is asked why."""
SILENCE_S = 5.0
STANDBY_S = 2.0
"""How often the standby of a stream hears of us."""
RETRY_S = 0.2


class Reader:
    """Batches have the stream's columns, `_pos` and `_ts`.

    Unread batches wait here, and when there are enough of them the query waits. `spare` results are
    dropped instead: reading on raises.
    """

    def __init__(
        self,
        client: Client,
        stream: str,
        site: str,
        consumer: str,
        spare: bool,
        spare_bytes: int | None = None,
    ) -> None:
        self.schema: pa.Schema | None = None
        self._client = client
        self._stream = stream
        self._site = site
        self._consumer = consumer
        self._spare = spare
        self._limit = (spare_bytes or SPARE_BYTES) if spare else AHEAD_BYTES
        self._position: int | None = None
        self._acked_at = 0.0
        self._unacked = False
        self._told_at = 0.0
        self._looked_at = time.monotonic()
        self._heard = time.monotonic()
        self._waiting: deque[pa.RecordBatch] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._error: AnabranchError | None = None
        self._stopped = threading.Event()
        self._remote: RemoteStream | None = None
        self._thread = threading.Thread(target=self._run, name=f"read-{stream}", daemon=True)
        self._thread.start()

    def next(self, timeout_s: float) -> pa.RecordBatch | None:
        """The next batch; None at the end. Raises TimeoutError, or, after all earlier batches, the
        error that the stream has failed with.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._waiting:
                if self._error:
                    raise self._error
                if self._ended or self._stopped.is_set():
                    return None
                if time.monotonic() >= deadline:
                    raise TimeoutError
                self._changed.wait(min(0.5, max(0.0, deadline - time.monotonic())))
                self._break_silence()
            batch = self._waiting.popleft()
            self._changed.notify_all()
            return batch

    def put_back(self, batch: pa.RecordBatch) -> None:
        """Makes a batch that was taken but not used the next one again."""
        if batch.num_rows:
            with self._changed:
                self._waiting.appendleft(batch)

    def wait_for_schema(self, timeout_s: float) -> pa.Schema | None:
        with self._changed:
            self._changed.wait_for(lambda: self.schema or self._error or self._ended, timeout_s)
            return self.schema

    def close(self) -> None:
        """Tells the producer that nothing is kept for us any more. Does not wait, because the
        garbage collector may call it.
        """
        self._stopped.set()
        remote = self._remote
        if remote:
            with suppress(Exception):
                remote.cancel()

    def join(self) -> None:
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._follow():
                    self._finish(None)
                    break
            except SiteError:  # which may come back, also elsewhere
                self._client.refresh()
            except Gap:
                message = f"results of {self._stream} were not kept while nobody read them"
                self._finish(TaskError(message, remedy="Read them sooner, or from a sink."))
            except AnabranchError as error:
                self._finish(error)
            except Exception as error:
                self._finish(TaskError(f"reading {self._stream} failed: {error!r}"))
            if self._error or self._look():
                break
            self._stopped.wait(RETRY_S)
        with suppress(AnabranchError):
            peer = self._client.site(self._site)
            peer.send(Detach(self._stream, self._consumer), ASK_S)

    def _follow(self) -> bool:
        """Reads until the stream ends (True) or the connection does."""
        if assignment := self._client.assignment(self._stream):
            self._site = assignment[0]
        peer = self._client.site(self._site)
        start = self._attach(peer)
        if self._position is None:
            self._position = start
        self._tell_standby()
        self._heard = time.monotonic()
        self._remote = peer.open(Follow(self._stream, self._consumer, self._position))
        self._learn(self._remote.schema)
        for batch in self._remote:
            self._heard = time.monotonic()
            if self._stopped.is_set():
                return True
            if batch.rows:
                self._take(batch)
                self._position, self._unacked = batch.last, True
            elif time.monotonic() - self._looked_at > LOOK_S and self._look():
                return False
            ended = batch.watermark == END_WATERMARK
            if self._unacked and (ended or time.monotonic() - self._acked_at > ACK_S):
                self._acknowledge(peer, batch.epoch)
            if ended:
                return True
        return False

    def _attach(self, peer: Peer) -> int:
        return peer.send(Attach(self._stream, self._consumer, self._position, lease=True))

    def _tell_standby(self) -> None:
        """Tells the standby to keep for us what we have not received, because it may take the
        stream over.
        """
        self._told_at = time.monotonic()
        self._client.refresh()
        assignment = self._client.assignment(self._stream)
        if assignment and assignment[1]:
            with suppress(AnabranchError):
                peer = self._client.site(assignment[1])
                self._attach(peer)
                peer.send(self._acks(epoch=0), ASK_S)

    def _learn(self, wire: pa.Schema) -> None:
        columns = [field for field in wire if field.name not in (EVENT_TIME, BORN)]
        times = [pa.field(POSITION, pa.int64()), pa.field(EVENT_TIME, pa.int64())]
        with self._changed:
            self.schema = pa.schema([*columns, *times])
            self._changed.notify_all()

    def _take(self, batch: Batch[pa.RecordBatch]) -> None:
        """Blocks while enough waits to be read."""
        assert self.schema
        positions = pa.array(np.arange(batch.first, batch.last + 1, dtype=np.int64))
        columns = [
            positions if name == POSITION else batch.data.column(name) for name in self.schema.names
        ]
        data = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        with self._changed:
            while self._bytes() > self._limit and not self._stopped.is_set():
                if self._spare:
                    raise Gap(self._stream)
                self._heard = time.monotonic()
                self._changed.wait(0.5)
            self._waiting.append(data)
            self._changed.notify_all()

    def _bytes(self) -> int:
        return sum(batch.nbytes for batch in self._waiting)

    def _acknowledge(self, peer: Peer, epoch: int) -> None:
        """Acknowledges what has come here, so that it is not sent again."""
        peer.send(self._acks(epoch), ASK_S)
        self._acked_at, self._unacked = time.monotonic(), False
        if self._client.assignment(self._stream) and time.monotonic() - self._told_at > STANDBY_S:
            self._tell_standby()

    def _acks(self, epoch: int) -> Acks:
        assert self._position is not None
        return Acks((Ack.of_reader(self._stream, self._consumer, self._position, epoch),))

    def _look(self) -> bool:
        """Whether there is a reason to stop waiting. While the coordinator is away nobody knows,
        and a site that is away may come back.
        """
        self._looked_at = time.monotonic()
        with suppress(SiteError):
            trouble = self._client.trouble(self._stream)
            if trouble:
                self._finish(trouble)
        return self._error is not None

    def _finish(self, error: AnabranchError | None) -> None:
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def _break_silence(self) -> None:
        """Replaces a connection that does not bring even a heartbeat."""
        if self._remote and time.monotonic() - self._heard > SILENCE_S:
            self._heard = time.monotonic()
            with suppress(Exception):
                self._remote.cancel()
