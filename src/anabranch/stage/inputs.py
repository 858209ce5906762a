"""Sources that can be read in parts: partitions, their ends, and ranges of them as Arrow tables.

An offset is a whole number. A file or a folder is one partition, since its rows have one order:
offsets count the rows (Parquet) or bytes (CSV, JSON) of all files in name order. Or each file is a
partition, numbered in that order, if the statement says that files are independent. A Kafka topic
has its own partitions and offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.connectors import make_source
from anabranch.connectors.files.source import FileSource
from anabranch.connectors.kafka.source import KafkaSource
from anabranch.connectors.source import Source, SourceContext
from anabranch.errors import SourceError
from anabranch.stage.lines import cut_lines, read_lines
from anabranch.stage.offsets import OffsetRange

ROWS = 1 << 20
"""Of Parquet in a task's range, unless its row groups are larger."""
BYTES = 32 << 20
"""Of text in a task's range."""
RECORDS = 200_000
"""Of a Kafka topic in a task's range."""
_ONLY = "0"
"""The name of a partition that is alone."""


class PartitionedInput(Protocol):
    finite: bool
    """Whether what is there now is all."""
    per_offset: float
    """Tuples of an offset, roughly."""

    def starts(self) -> dict[str, int]:
        """For each partition the offset where a first reading begins."""

    def ends(self) -> dict[str, int]:
        """For each partition the offset after its present content."""

    def cut(self, gap: OffsetRange) -> OffsetRange:
        """The first part of `gap`, as large as one task takes."""

    def read(self, range: OffsetRange) -> pa.Table:
        """Its rows, in order, with EVENT_TIME after the declared columns."""


@dataclass(frozen=True)
class Share:
    """A server's share of an input: every `parts`th partition, from number `part` on."""

    part: int = 0
    parts: int = 1
    by_file: bool = False

    def of(self, partitions: dict[str, int]) -> dict[str, int]:
        return {name: at for name, at in partitions.items() if int(name) % self.parts == self.part}


def make_input(name: str, context: SourceContext, share: Share) -> PartitionedInput:
    """The input of that name. Raises ConfigError or SourceError as the source would."""
    source: Source = make_source(name, context)
    if isinstance(source, KafkaSource):
        return KafkaInput(source, share)
    assert isinstance(source, FileSource)
    if source.format == "parquet":
        return ParquetInput(source, share)
    return TextInput(source, context, share)


class KafkaInput:
    per_offset = 1.0

    def __init__(self, source: KafkaSource, share: Share) -> None:
        self.finite = source.finite
        self._source = source
        self._share = share

    def starts(self) -> dict[str, int]:
        starts: dict[str, int] = self._source.start_cursor()
        return self._share.of(starts)

    def ends(self) -> dict[str, int]:
        return self._share.of({str(number): end for number, end in self._source.ends().items()})

    def cut(self, gap: OffsetRange) -> OffsetRange:
        return OffsetRange(gap.partition, gap.begin, min(gap.end, gap.begin + RECORDS))

    def read(self, range: OffsetRange) -> pa.Table:
        return self._source.reread({range.partition: range.begin}, {range.partition: range.end})


class _Files:
    """`sizes` of the files, by which offsets go over from one to the next."""

    finite = True

    def __init__(self, source: FileSource, share: Share) -> None:
        self._source = source
        self._share = share

    @cached_property
    def _bounds(self) -> list[int]:
        """The places where files begin, if they form one sequence."""
        return [0, *accumulate(self._size(file) for file in self._source.files)]

    @cached_property
    def _files(self) -> dict[str, int]:
        """The files that are partitions, by their number, each with its size."""
        numbered = enumerate(self._source.files)
        mine = self._share.of({str(number): number for number, _ in numbered})
        return {name: self._size(self._source.files[number]) for name, number in mine.items()}

    def _size(self, file: Path) -> int:
        raise NotImplementedError

    def starts(self) -> dict[str, int]:
        return dict.fromkeys(self._files, 0) if self._share.by_file else self._share.of({_ONLY: 0})

    def ends(self) -> dict[str, int]:
        whole = {_ONLY: self._bounds[-1]}
        return dict(self._files) if self._share.by_file else self._share.of(whole)

    def _place(self, partition: str, offset: int) -> tuple[Path, int, int]:
        """The file that holds `offset`, the place of the offset in it, and the offset of its
        beginning.
        """
        if self._share.by_file:
            return self._source.files[int(partition)], offset, 0
        number = bisect_right(self._bounds, offset) - 1
        begin = self._bounds[number]
        return self._source.files[number], offset - begin, begin

    def _pieces(self, range: OffsetRange) -> Iterator[tuple[Path, int, int]]:
        """The parts of files, with their start and end, that make up `range`."""
        if self._share.by_file:
            yield self._source.files[int(range.partition)], range.begin, range.end
            return
        at = range.begin
        while at < range.end:
            file, start, begin = self._place(range.partition, at)
            number = bisect_right(self._bounds, at)
            until = min(range.end, self._bounds[number])
            yield file, start, until - begin
            at = until


class ParquetInput(_Files):
    """Ranges are whole row groups, of several files if these are small."""

    per_offset = 1.0

    def _size(self, file: Path) -> int:
        return sum(self._groups(file))

    def _groups(self, file: Path) -> list[int]:
        if file not in self._known:
            try:
                metadata = pq.read_metadata(file)
            except (OSError, pa.ArrowException) as error:
                raise SourceError("not a Parquet file", place=str(file)) from error
            groups = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
            self._known[file] = groups
        return self._known[file]

    @cached_property
    def _known(self) -> dict[Path, list[int]]:
        return {}

    def _ends_of_groups(self, partition: str) -> list[int]:
        if partition not in self._cuts:
            by_file = self._share.by_file
            files = [self._source.files[int(partition)]] if by_file else self._source.files
            self._cuts[partition] = list(accumulate(n for f in files for n in self._groups(f)))
        return self._cuts[partition]

    @cached_property
    def _cuts(self) -> dict[str, list[int]]:
        return {}

    def cut(self, gap: OffsetRange) -> OffsetRange:
        ends = self._ends_of_groups(gap.partition)
        number = bisect_right(ends, gap.begin + ROWS) - 1
        end = ends[max(number, bisect_right(ends, gap.begin))] if ends else gap.end
        return OffsetRange(gap.partition, gap.begin, min(gap.end, end))

    def read(self, range: OffsetRange) -> pa.Table:
        tables = []
        for file, start, until in self._pieces(range):
            for table, mark in self._source.reader.read(file, start or None):
                tables.append(table)
                if mark >= until:
                    break
        return pa.concat_tables(tables)


class TextInput(_Files):
    """Ranges are whole lines of one file."""

    per_offset = 1 / 32

    def __init__(self, source: FileSource, context: SourceContext, share: Share) -> None:
        super().__init__(source, share)
        self._context = context

    def _size(self, file: Path) -> int:
        return file.stat().st_size

    def cut(self, gap: OffsetRange) -> OffsetRange:
        file, start, begin = self._place(gap.partition, gap.begin)
        end = begin + cut_lines(self._source, self._context, file, start, BYTES)
        return OffsetRange(gap.partition, gap.begin, min(gap.end, end))

    def read(self, range: OffsetRange) -> pa.Table:
        ((file, start, until),) = self._pieces(range)
        return read_lines(self._source, self._context, file, start, until)
