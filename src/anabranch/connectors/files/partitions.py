"""Results in folders by the values of columns: `day=2026-01-31/room=hall`, as Hive and Spark name
them. The columns stand in the names and not in the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from anabranch.connectors.options import TEXT, Option, unknown
from anabranch.errors import ConfigError

PARTITION_BY = Option(
    "partition_by",
    TEXT,
    "a column, or several with commas: path is a folder then, with one below it for each value",
)
_NONE = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = {ord(character): f"%{ord(character):02X}" for character in "\"#%'*/:=?\\{[]^\x7f"} | {
    code: f"%{code:02X}" for code in range(32)
}
_LONGEST_NAME = 255


class Partitions:
    """Splits tables by partition. `schema` is the tables' own, `_pos` and `_ts` last."""

    def __init__(self, sink: str, given: str | None, schema: pa.Schema) -> None:
        """Raises ConfigError if a column does not exist, or its type cannot name a folder."""
        names = [name.strip() for name in given.split(",")] if given else []
        own = {name.lower(): name for name in schema.names[:-2]}
        self.columns: list[str] = []
        for name in names:
            if name.lower() not in own:
                raise unknown(
                    f"{sink}() has partition_by = {name!r}, no column", name, own.values()
                )
            column = own[name.lower()]
            type_ = schema.field(column).type
            if pt.is_nested(type_) or pt.is_binary(type_):
                raise ConfigError(
                    f"{sink}() has partition_by = {name!r}, of a type that makes no folder's name",
                    remedy="Name a column of numbers, text or dates.",
                )
            self.columns.append(column)
        if len(set(self.columns)) == len(own) or len(set(self.columns)) < len(self.columns):
            raise ConfigError(
                f"{sink}() has partition_by = {given!r}",
                remedy="Name each column once, and leave one at least for the files.",
            )
        self.schema = pa.schema([field for field in schema if field.name not in self.columns])
        """What is left for the files."""

    def split(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """The folders of the rows with their rows, which keep their order."""
        if not self.columns:
            yield "", table
            return
        names = [_names(column, table.column(column)) for column in self.columns]
        folders = pc.binary_join_element_wise(*names, "/").combine_chunks().dictionary_encode()
        codes = folders.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.flatnonzero(np.diff(codes[order])) + 1
        rest = table.select(self.schema.names)
        for rows in np.split(order, ends):
            folder = folders.dictionary[codes[rows[0]]].as_py()
            yield folder, rest.take(pa.array(rows))

    @property
    def pattern(self) -> str:
        """A pattern that all these folders fit."""
        return "/".join(f"{_escaped(column)}=*" for column in self.columns)


def _names(column: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """The name of each value's folder."""
    known = values.unique()
    texts = known.cast(pa.string()).to_pylist()
    names = [f"{_escaped(column)}={_escaped(text) if text else _NONE}" for text in texts]
    for name in names:
        if len(name.encode()) > _LONGEST_NAME:
            raise ValueError(f"{name[:60]}… is too long for the name of a folder")
    found: Any = pa.array(names, pa.string())
    return pa.chunked_array([found.take(pc.index_in(values.combine_chunks(), known))])


def _escaped(text: str) -> str:
    return text.translate(_ESCAPED)
