"""What users' programs hold, as bytes that another run of them reads."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

from anabranch.spark.inside import CloudPickler


class _Pickler(CloudPickler):
    def __init__(self, file: io.BytesIO, own: Mapping[str, Any]) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self._own = own

    def persistent_id(self, obj: Any) -> str | None:
        """Saves a class of the program's own module by its name: the next run loads that module
        again, and asks with `isinstance` for what it finds there.
        """
        name = getattr(obj, "__qualname__", "") if isinstance(obj, type) else ""
        return name if name and self._own.get(name) is obj else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, own: Mapping[str, Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._own = own

    def persistent_load(self, name: str) -> Any:
        return self._own[name]


def packed(state: object, own: Mapping[str, Any]) -> bytes:
    """The pickled state; `own` are the names of the program's module. Raises what pickling
    raises.
    """
    buffer = io.BytesIO()
    _Pickler(buffer, own).dump(state)  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def unpacked(data: bytes, own: Mapping[str, Any]) -> Any:
    return _Unpickler(data, own).load()
