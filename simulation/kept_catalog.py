"""A catalog whose committed content survives its process, as a file would."""

from __future__ import annotations

from anabranch.coordinator.base.catalog import Catalog


class KeptCatalog(Catalog):
    """What an earlier life has committed is there; what it had begun is not."""

    def __init__(self, before: KeptCatalog | None = None) -> None:
        super().__init__(":memory:")
        if before:
            before._db.rollback()
            self._db.deserialize(before._db.serialize())
            before._db.close()
