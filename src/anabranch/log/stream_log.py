"""The entries of one stream in a folder, in segments that are written once and removed whole."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

from anabranch.disk.folder import Appending, Folder
from anabranch.disk.records import read_records, record, records_from
from anabranch.errors import CannotResume, StorageError
from anabranch.log.segment import REMEDY, Entry, Segment, from_bytes, to_bytes
from anabranch.plan.keep import Keep, LogPart
from anabranch.stream.restart import START_WATERMARK

SEGMENT_BYTES = 16_000_000
"""A segment that has grown so large is closed, and the next one begins."""
FORMAT = 2
_ANEW, _FORMAT, _BEFORE = "anew", "format", "before"
"""Notes of the first entry of a segment: nothing before it counts; how its entries are written;
first position and size of the segment before it."""
_HEAD_BYTES = 10_000


def _pattern(name: str) -> re.Pattern[str]:
    """A pattern of the names of its files."""
    return re.compile(rf"{re.escape(name)}\.(\d{{20}})\.log")


def remove_log(folder: Folder, name: str) -> None:
    """Removes the log of a stream that begins from the beginning, because a person said so. The
    newest file goes first: if that is interrupted, the rest cannot pass for a whole log.
    """
    for file in sorted(filter(_pattern(name).fullmatch, folder.names()), reverse=True):
        folder.remove(file)


class StreamLog:
    """Holds every tuple after `begin` up to `last`, each once and in order.

    Appended entries survive the death of the process once `append` returns, and that of the machine
    once `sync` has. A StorageError leaves the log as it was before the call. One thread at a time
    may change it, while others read the entries that existed when they asked. Calls may wait for
    the disk.
    """

    def __init__(
        self,
        folder: Folder,
        name: str,
        learn: Callable[[Entry], None] = lambda entry: None,
        notes: Callable[[], Mapping[str, Any]] = dict,
        *,
        lasting: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        """Raises CannotResume for a log that is damaged or has a gap. `learn` is called with the
        entries of the newest segment, in order. What it has computed from earlier ones must be in
        `notes`, with which each segment begins. A log that is not `lasting` is never read by
        another process, so nothing of it is forced to the disk.
        """
        self._folder = folder
        self._learn = learn
        self._notes = notes
        self._lasting = lasting
        self._segment_bytes = segment_bytes
        self._pattern = _pattern(name)
        self._name = name
        self._file: Appending | None = None
        self._newest: Entry | None = None
        self._newest_time = START_WATERMARK
        self._doubtful = False
        """Nobody knows what of the newest file is on the disk."""
        self._segments: list[Segment] = []
        self._sealed = 0
        """Bytes of all segments but the newest."""
        if lasting:
            self._hold(self._found())

    @property
    def begin(self) -> int:
        """The position after which nothing is missing."""
        return self._segments[0].first - 1 if self._segments else 0

    @property
    def last(self) -> int:
        return self._segments[-1].last if self._segments else 0

    @property
    def newest(self) -> Entry | None:
        """The entry written last; its watermark and notes hold at the end of the log."""
        return self._newest

    @property
    def newest_time(self) -> int:
        """The greatest event time of all that was ever written."""
        return self._newest_time

    @property
    def gone_time(self) -> int:
        """The greatest event time of what has been let go of."""
        return self._segments[0].before if self._segments else START_WATERMARK

    @property
    def place(self) -> str:
        """The name of the log in messages."""
        return self._folder.place(self._name)

    @property
    def size(self) -> int:
        """The bytes on the disk."""
        return self._sealed + self._segments[-1].size if self._segments else 0

    # -- writing ---------------------------------------------------------------------------------

    def append(self, entry: Entry, *, sync: bool = False) -> None:
        """Adds the tuples after `last`. With `sync` they survive the death of the machine, with all
        before them, once it returns.
        """
        if self._segments and entry.first != self.last + 1:
            raise AssertionError(f"{self._name}: {entry.first} does not follow {self.last}")
        if not self._segments or self._segments[-1].size >= self._segment_bytes:
            self._begin_segment(entry.first)
        segment = self._segments[-1]
        data = record(to_bytes(entry))
        file = self._appending(segment)
        file.append(data)
        if sync:
            try:
                self._force(file)
            except StorageError:  # it is cut off again before the next
                self.close()
                raise
        segment.grow_to(entry.last, segment.size + len(data))
        self._newest, self._newest_time = entry, max(self._newest_time, entry.newest)

    def sync(self) -> None:
        if self._segments:
            self._force(self._appending(self._segments[-1]))

    def begin_after(self, position: int) -> None:
        """Forgets all that came before: somebody else wrote it, or nobody needs it."""
        old = self._segments
        self._begin_segment(position + 1, anew=True)
        self._hold(self._segments[-1:])
        for segment in old:
            if segment.name != self._segments[0].name:
                self._folder.remove(segment.name)

    def release(self, position: int) -> None:
        """Takes note that nobody reads anything up to `position` any more: segments without
        anything else go, but for the newest, which knows where the stream stands.
        """
        while self.has_released(position):
            self._folder.remove(self._segments[0].name)
            self._hold(self._segments[1:])

    def past(self, keep: Keep) -> int:
        """The last position that need not be kept for those who come later; 0 if all must be."""
        segments = self._segments
        parts = [LogPart(one.last, one.size, after.before) for one, after in pairwise(segments)]
        return keep.past(parts, self.size, self._newest_time)

    @property
    def oldest(self) -> int:
        """The last position of what would go first; 0 if that is still written to."""
        return self._segments[0].last if len(self._segments) > 1 else 0

    def has_released(self, position: int) -> bool:
        """Whether something could go if nobody needed anything up to there."""
        return len(self._segments) > 1 and self._segments[0].last <= position

    def remove(self) -> None:
        """Removes all of it; if this is interrupted, the rest cannot pass for a whole log."""
        self.close()
        self._hold([])
        remove_log(self._folder, self._name)

    def close(self) -> None:
        """Closes the files. The log may be used again. Calling it again does no harm."""
        if self._file:
            self._file.close()
            self._file = None

    # -- reading ---------------------------------------------------------------------------------

    def read(self, after: int) -> Iterator[Entry]:
        """All entries with tuples after this position, the first of which may begin before it; and
        those without rows among them. Raises CannotResume if there is no such position here.
        """
        segments = self._segments
        begin = segments[0].first - 1 if segments else 0
        if not begin <= after <= self.last:
            raise CannotResume(
                f"the log has positions {begin + 1} to {self.last}, so it cannot be read"
                f" after {after}",
                place=self.place,
                remedy=REMEDY,
            )
        for segment in segments[max(0, self._index(segments, after)) :]:
            if segment.last > after:
                yield from segment.entries(self._folder, after)

    def since(self, time: int) -> int:
        """The position before the first entry with a tuple of this event time or a later one: no
        such tuple lies before it, except released ones.
        """
        segments = self._segments
        later = (n for n, one in enumerate(segments) if one.before >= time)
        for segment in segments[max(0, next(later, len(segments)) - 1) :]:
            if segment.before >= time:
                return segment.first - 1
            for entry in segment.entries(self._folder):
                if entry.newest >= time:
                    return entry.first - 1
        return self.last

    @staticmethod
    def _index(segments: list[Segment], after: int) -> int:
        """The index of the segment that has the tuple after this position, if there is one."""
        return bisect_right(segments, after + 1, key=lambda one: one.first) - 1

    # -- segments --------------------------------------------------------------------------------

    def _begin_segment(self, first: int, *, anew: bool = False) -> None:
        """Begins a segment with the promise that holds, and the notes, in case the segments before
        it go.
        """
        name = f"{self._name}.{first:020}.log"
        if self._segments:
            self.sync()
        before = self._segments
        if before and before[-1].name == name:  # it had promises only
            before = before[:-1]
        watermark = self._newest.watermark if self._newest else START_WATERMARK
        notes = dict(self._notes()) | {_FORMAT: FORMAT, _ANEW: anew}
        if before and not anew:
            notes[_BEFORE] = [before[-1].first, before[-1].size]
        head = Entry(first, 0, watermark, notes=notes, newest=self._newest_time)
        data = record(to_bytes(head))
        self.close()
        self._folder_takes(name, data)
        self._doubtful = False
        self._hold([*before, Segment(name, first, len(data), self._newest_time, anew=anew)])

    def _hold(self, segments: list[Segment]) -> None:
        """Replaces the list of segments; running readers go on with the list that they have."""
        self._segments = segments
        self._sealed = sum(one.size for one in segments[:-1])

    def _folder_takes(self, name: str, data: bytes) -> None:
        """Writes the file as a whole."""
        if self._lasting:
            self._folder.replace(name, data)
            return
        file = self._folder.append_to(name, 0)
        try:
            file.append(data)
        except StorageError:
            file.close()
            raise
        self._file = file

    def _appending(self, segment: Segment) -> Appending:
        if self._doubtful:
            self._write_again(segment)
        if self._file is None:
            self._file = self._folder.append_to(segment.name, segment.size)
        return self._file

    def _force(self, file: Appending) -> None:
        if self._lasting:
            self._doubtful = True
            file.sync()
            self._doubtful = False

    def _write_again(self, segment: Segment) -> None:
        """Writes the segment again after a sync that failed."""
        self.close()
        data = (self._folder.read(segment.name) or b"")[: segment.size]
        if read_records(data, self._folder.place(segment.name)).size < segment.size:
            raise self._damaged(segment.name, f"it ends before byte {segment.size}")
        self._folder.replace(segment.name, data)
        self._doubtful = False

    # -- what is there ---------------------------------------------------------------------------

    def _found(self) -> list[Segment]:
        """The segments in the folder, the oldest first. Only the newest may have a torn end: each
        is begun when the one before it is whole.
        """
        names = sorted(filter(self._pattern.fullmatch, self._folder.names()))
        found: list[Segment] = []
        for name in names:
            head = self._head(name)
            anew = bool(head.notes[_ANEW])
            if anew:
                found.clear()
            if found:
                self._close_before(name, head, found[-1])
            size = len(record(to_bytes(head)))
            found.append(Segment(name, head.first, size, head.newest, anew=anew))
        if found:
            self._measure(found[-1])
        return found

    def _head(self, name: str) -> Entry:
        """The first entry of a segment."""
        size = self._folder.size(name)
        for _, payload in records_from(self._folder, name, 0, size, _HEAD_BYTES):
            head = from_bytes(payload)
            if head.notes.get(_FORMAT) != FORMAT:
                is_format = head.notes.get(_FORMAT, 1)
                raise self._damaged(name, f"its format is {is_format}, and ours {FORMAT}")
            return head
        raise self._damaged(name, "the file has no beginning")

    def _close_before(self, name: str, head: Entry, before: Segment) -> None:
        """Raises CannotResume if another segment was before the one with this head, or a longer
        one.
        """
        first, size = head.notes[_BEFORE]
        if first != before.first:
            raise self._damaged(name, f"positions {first} to {head.last} are missing before it")
        if (there := self._folder.size(before.name)) < size:
            raise self._damaged(before.name, f"it ends at byte {there} of {size}")
        before.grow_to(head.last, size)

    def _measure(self, newest: Segment) -> None:
        """Reads all of the newest segment: how far it goes, and what its entries say."""
        data = self._folder.read(newest.name) or b""
        records = read_records(data, self._folder.place(newest.name))
        self._newest_time = newest.before
        for payload, end in zip(records.payloads, records.ends, strict=True):
            entry = self._newest = from_bytes(payload)
            if entry.first != newest.last + 1:
                what = f"position {entry.first} comes after {newest.last}"
                raise self._damaged(newest.name, what)
            if end > newest.size:
                newest.grow_to(entry.last, end)
            self._newest_time = max(self._newest_time, entry.newest)
            self._learn(entry)

    def _damaged(self, name: str, what: str) -> CannotResume:
        return CannotResume(what, place=self._folder.place(name), remedy=REMEDY)
