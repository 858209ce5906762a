"""A stream that programs fill: looked at meanwhile, killed between any two steps, given again."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.disk.folder import Folder
from anabranch.disk.real import RealFolder
from anabranch.errors import CannotResume, SourceError, StorageError
from anabranch.link.inlet import Budget
from anabranch.link.outlet import LiveOutlet
from anabranch.link.store import DiskBudget, KeptLog, Shelves
from anabranch.link.wire import ArrowBatches, record_batches
from anabranch.log.spills import Spills
from anabranch.log.stream_log import StreamLog
from anabranch.plan.catalog import StreamDef
from anabranch.plan.keep import Keep
from anabranch.plan.spec import Column
from anabranch.site.sources.open_stream import OpenStream, PocketPoint
from anabranch.stream.batch import END_WATERMARK
from anabranch.stream.restart import FOREVER, RestartPoint
from tests.disk.failing_folder import Failed, FailingFolder
from tests.link.support import BEAT_S, LOOP, SCHEMA, an_outlet, eventually, follow

DEFINITION = StreamDef(name="S", columns=(Column(name="n", type="BIGINT"),), site="here")


def a_stream(folder: Folder | None = None) -> OpenStream:
    return OpenStream(DEFINITION, an_outlet(), 1_000_000, folder, "S")


def end(stream: OpenStream) -> None:
    """Its process is gone, and with it what goes by the clock."""
    stream._stopped.set()
    stream.outlet.close()


def rows(*numbers: int, times: list[int] | None = None) -> pa.Table:
    columns = {"n": pa.array(numbers, pa.int64())}
    if times is not None:
        columns["_ts"] = pa.array(times, pa.int64())
    return pa.table(columns)


def given(stream: OpenStream, after: int, last: int) -> list[tuple[int, int, int]]:
    """Position, value and event time of the tuples after one position up to another."""
    found: list[tuple[int, int, int]] = []
    if last > after:
        for batch in follow(stream.outlet, "reader", after):
            values = batch.data.column("n").to_pylist()
            times = batch.data.column("_ts").to_pylist()
            positions = range(batch.first, batch.last + 1)
            found += zip(positions, values, times, strict=True)
            if batch.last >= last:
                break
    return found


def test_a_report_does_not_wait_for_a_push() -> None:
    """Reports are made inside the runtime, which a push, holding its lock, waits for."""
    stream = a_stream()
    told: list[dict[str, object]] = []
    with stream._lock:
        asking = threading.Thread(target=lambda: told.append(stream.report()), daemon=True)
        asking.start()
        asking.join(timeout=10)
        assert told
    stream.close()


def again(folder: Folder, position: int) -> OpenStream:
    """After a restart, with a reader that needs what lies after `position`."""
    stream = a_stream(folder)
    stream.resume(position)
    stream.outlet.attach("reader", after=position)
    stream.start()
    eventually(lambda: stream.error is not None or not stream._missing)
    return stream


@pytest.mark.parametrize("torn", [0, 5])
@pytest.mark.parametrize("timed", [False, True])
def test_killed_between_any_two_steps_nothing_is_lost_repeated_or_renumbered(
    tmp_path: Path, torn: int, timed: bool
) -> None:
    """A program pushes five times, and again what it had no answer to. Its site is killed at each
    call of the disk in turn; a reader then goes on from the beginning, or from where it was."""
    for step in range(20):
        place = tmp_path / str(step)
        seen: dict[int, tuple[int, int]] = {}
        stream = a_stream(FailingFolder(RealFolder(place), step, torn))
        stream.outlet.attach("reader", after=0)
        answered = 0
        try:
            for number in range(1, 6):
                assert stream.push(pushed(number, timed), "program", number)
                answered = number
        except Failed:
            pass
        whole = answered == 5
        seen = {at: row for at, *row in given(stream, 0, stream.outlet.last)}  # type: ignore[misc]
        end(stream)
        for position in (0, min(3, len(seen))):
            folder = RealFolder(place)
            stream = again(folder, position)
            for number in range(answered + 1, 6):
                assert stream.push(pushed(number, timed), "program", number)
            found = given(stream, position, 10)
            assert [value for _, value, _ in found] == list(range(10))[position:]
            assert all(seen.get(at, row) == row for at, *row in found)
            assert stream.outlet.last == 10
            stream.close()
            stream.outlet.close()
            answered = 5
        if whole:
            return
    pytest.fail("it never came to its end")


def pushed(number: int, timed: bool) -> pa.Table:
    first = 2 * (number - 1)
    return rows(first, first + 1, times=[first, first + 1] if timed else None)


def test_a_promise_of_the_clock_holds_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock is set back meanwhile: what comes is not older than what was promised."""
    from anabranch.site.sources import open_stream

    clock = [1_000_000_000_000]
    monkeypatch.setattr(open_stream.time, "time_ns", lambda: clock[0])
    stream = a_stream(RealFolder(tmp_path))
    stream.push(rows(1))
    clock[0] += 5_000_000_000
    stream._beat()
    promised = stream.outlet.watermark
    assert promised == clock[0] // 1000
    clock[0] -= 3_600_000_000_000
    stream.close()
    next_life = again(RealFolder(tmp_path), 0)
    next_life.push(rows(2))
    (_, late) = given(next_life, 0, 2)
    assert late[1] == 2
    assert late[2] >= promised


def test_what_comes_before_it_is_known_where_the_stream_goes_on_waits(tmp_path: Path) -> None:
    """Programs try again at once; what they had pushed before is not given up for that."""
    stream = a_stream(RealFolder(tmp_path))
    stream.push(rows(1, 2), "a", 1)
    stream.close()
    next_life = a_stream(RealFolder(tmp_path))
    assert not next_life.push(rows(3), "a", 2)
    with pytest.raises(SourceError, match="Try again"):
        next_life.end()
    next_life.resume(0)
    next_life.outlet.attach("reader", after=0)
    next_life.start()
    eventually(lambda: next_life.push(rows(3), "a", 2))
    assert [value for _, value, _ in given(next_life, 0, 3)] == [1, 2, 3]
    next_life.close()


def test_nothing_is_taken_before_the_readers_are_there_again(tmp_path: Path) -> None:
    """What was given in between would be kept for none of them."""
    stream = a_stream(RealFolder(tmp_path))
    stream.push(rows(1, 2), "a", 1)
    stream.close()
    next_life = a_stream(RealFolder(tmp_path))
    next_life.resume(2)
    assert not next_life.push(rows(3), "a", 2)
    next_life.outlet.attach("reader", after=2)
    next_life.start()
    eventually(lambda: next_life.push(rows(3), "a", 2))
    assert [value for _, value, _ in given(next_life, 2, 3)] == [3]
    next_life.close()
    unread = a_stream(RealFolder(tmp_path))
    unread.resume(FOREVER)
    assert unread.push(rows(4), "a", 3)  # nobody starts a stream that nobody reads
    unread.close()


def test_the_end_outlives_a_restart(tmp_path: Path) -> None:
    stream = a_stream(RealFolder(tmp_path))
    stream.push(rows(1, 2))
    stream.end()
    stream.close()
    next_life = again(RealFolder(tmp_path), 0)
    assert next_life.outlet.watermark == END_WATERMARK
    assert len(given(next_life, 0, 2)) == 2
    with pytest.raises(SourceError, match="has ended"):
        next_life.push(rows(3))


def test_a_reader_that_knows_more_than_the_log_is_refused_with_both_numbers(tmp_path: Path) -> None:
    """The page cache was lost with the machine, or the folder is another one."""
    stream = a_stream(RealFolder(tmp_path))
    stream.push(rows(1, 2))
    stream.close()
    with pytest.raises(
        CannotResume, match="after position 5, but what was pushed is kept from 1 to 2"
    ):
        a_stream(RealFolder(tmp_path)).resume(5)


def test_who_is_read_by_nobody_goes_on_where_it_was(tmp_path: Path) -> None:
    stream = a_stream(RealFolder(tmp_path))
    stream.push(rows(1, 2))
    stream.close()
    next_life = a_stream(RealFolder(tmp_path))
    next_life.resume(FOREVER)
    next_life.push(rows(3))
    assert next_life.outlet.last == 3


def test_what_cannot_be_kept_is_not_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = a_stream(RealFolder(tmp_path))
    stream.push(rows(1))

    def full(*_: object, **__: object) -> None:
        raise StorageError("no space left on the device")

    with monkeypatch.context() as patch:
        patch.setattr(stream._log, "append", full)
        with pytest.raises(StorageError):
            stream.push(rows(2))
        assert stream.outlet.last == 1
    stream.push(rows(2))
    assert stream.outlet.last == 2
    stream.close()
    assert again(RealFolder(tmp_path), 0).outlet.last == 2


@pytest.mark.parametrize("torn", [0, 5])
def test_what_a_pocket_gave_is_given_again_and_not_made_again(tmp_path: Path, torn: int) -> None:
    """It gives something else whenever it is asked. Killed between any two steps, it goes on after
    what is kept, and a reader gets the same rows whether or not it had them before."""
    made = iter(range(1_000_000))

    def give(stream: OpenStream, upto: int) -> None:
        table = pa.table([[next(made)] * 2, [upto] * 2, [upto] * 2], schema=stream.outlet.schema)
        pieces = list(record_batches(table, 10))
        stream.keep_given(pieces, upto, PocketPoint(7, (upto,)))
        stream.outlet.append(pieces, upto)

    for step in range(20):
        place = tmp_path / str(step)
        stream = a_stream(FailingFolder(RealFolder(place), step, torn))
        stream.outlet.attach("reader", after=0)
        whole = False
        try:
            for upto in (10, 20, 30):
                give(stream, upto)
            whole = True
        except Failed:
            pass
        seen = given(stream, 0, stream.outlet.last)
        end(stream)
        stream = a_stream(RealFolder(place))
        stream.pocket = "P"
        stream.outlet.start_at(0)
        stream.outlet.attach("reader", after=0)
        point = stream.go_on_after(RestartPoint((3,), 0, incarnation=1), 7)
        assert point.output == stream.outlet.last >= len(seen)
        assert point.incarnation == 1
        assert point.inputs == ((10 * point.output // 2,) if point.output else (3,))
        for upto in range(10 * point.output // 2 + 10, 40, 10):
            give(stream, upto)
        found = given(stream, 0, 6)
        assert found[: len(seen)] == seen
        assert [time for _, _, time in found] == [10, 10, 20, 20, 30, 30]
        stream.close()
        stream.outlet.close()
        if whole:
            return
    pytest.fail("it never came to its end")


def test_programs_may_push_again_after_a_pocket_that_was_not_kept(tmp_path: Path) -> None:
    stream = a_stream(RealFolder(tmp_path))
    stream.push(rows(1))
    stream.pocket = "P"
    table = pa.table([[2], [2], [2]], schema=stream.outlet.schema)
    stream.outlet.append(record_batches(table, 10), 2)
    stream.pocket = None
    stream.push(rows(3))
    stream.close()
    assert again(RealFolder(tmp_path), 2).outlet.last == 3


def kept(folder: RealFolder) -> OpenStream:
    """A stream of which everything is kept for those who come later."""
    log = StreamLog(folder, "s+kept", segment_bytes=2_000)
    shelves = Shelves(Budget(LOOP, 1 << 20), DiskBudget(1 << 30), Spills(folder).new)
    outlet = LiveOutlet(
        LOOP,
        "S",
        ArrowBatches(SCHEMA),
        limit=1 << 20,
        heartbeat_s=BEAT_S,
        shelves=shelves,
        record=KeptLog(log, Keep(us=10**15)),
    )
    return OpenStream(a_stream().stream, outlet, BEAT_S, folder, "s")


@pytest.mark.parametrize("written", [False, True])
def test_what_is_pushed_and_kept_outlives_its_process(tmp_path: Path, written: bool) -> None:
    """Also what was not in the log of those who come later when the process was killed."""
    stream = kept(RealFolder(tmp_path))
    for number in range(1, 41):
        assert stream.push(rows(number), "program", number)
    log = stream.outlet.log
    assert log
    if written:
        eventually(lambda: log.last == 40)
    end(stream)
    LOOP.run(stream.outlet.rest())
    for _ in range(2):
        stream = kept(RealFolder(tmp_path))
        stream.resume(FOREVER)
        stream.start()
        eventually(lambda: not stream._missing)  # noqa: B023
        last = stream.outlet.last
        assert stream.push(rows(last + 1), "program", last + 1)
        stream.outlet.attach("reader", after=0)
        found = given(stream, 0, last + 1)
        assert [(at, value) for at, value, _ in found] == [(n, n) for n in range(1, last + 2)]
        end(stream)
        LOOP.run(stream.outlet.rest())
