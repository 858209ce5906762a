"""Outside tables by name. A new one is a module here and a line in TABLES."""

from __future__ import annotations

from anabranch.site.registry import Registry
from anabranch.site.tables.base import TableContext, TableReader

__all__ = ["TABLES", "TableContext", "TableReader", "make_table"]

TABLES: Registry[TableReader] = Registry(
    "table source",
    {
        "file": "anabranch.site.tables.file:FileTable",
        "postgres": "anabranch.site.tables.postgres:PostgresTable",
    },
)


def make_table(name: str, context: TableContext) -> TableReader:
    """The reader called `name`, its options checked, nothing read yet."""
    return TABLES.find(name)(context)
