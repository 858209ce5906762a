"""The common parts of all messages: their names, their answers, and how both travel.

A message travels as JSON and is checked where it arrives; inside a process it is handed over
unchanged. All is derived from the dataclasses: their fields are the keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import Field, dataclass, field, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError

from anabranch.errors import ProtocolError

PROTOCOL = 2
"""Rises with every change of the messages that an older program would misunderstand. What is new
and may be left out is ignored by those who do not know it."""

A = TypeVar("A")
T = TypeVar("T")
M = TypeVar("M", bound="Message[Any]")
INLINE = {"inline": True}
"""The metadata of a field for a part that may be missing. If it is there, its keys stand among
those of the whole."""
_LEAVES = frozenset((str, int, float, bool, type(None)))


class Message(Generic[A]):
    """A frozen dataclass, which is answered by an A. Its `action` is the name of the class in small
    letters, unless the class sets another.
    """

    __slots__ = ()
    action: ClassVar[str]
    answer: ClassVar[Any] = NoneType

    def __init_subclass__(cls, action: str = "") -> None:
        super().__init_subclass__()
        if "action" not in vars(cls):  # else it is the same class, made once more for its slots
            cls.action = action or re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
        for base in vars(cls).get("__orig_bases__", ()):
            kind = get_origin(base)
            if isinstance(kind, type) and issubclass(kind, Message):
                (cls.answer,) = get_args(base)


class Bring(Message[A]):
    """A message that comes with a table."""

    __slots__ = ()


class Fetch(Message[A]):
    """A message that is answered with a table, and with an A that goes along with it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """A catalog that somebody belongs to: its identity, and the state folder that it is in."""

    id: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Message[A]):
    """A coordinator's order to a site. A site that runs something for another catalog refuses
    it.
    """

    origin: Origin = field(default_factory=Origin)


# -- as JSON -------------------------------------------------------------------------------------


def gathered(name: str, key: str) -> Callable[[Any, Any], Any]:
    """A validator to run before reading: an INLINE part is there if its `key` is."""

    def gather(cls: Any, data: Any) -> Any:
        return {**data, name: data} if isinstance(data, dict) and key in data else data

    return gather


def plain(value: Any) -> Any:
    """The value in JSON's types. A field that is None by default is left out while it is None."""
    if type(value) in _LEAVES:
        return value
    if is_dataclass(value):
        return _plain_fields(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    return value


def _plain_fields(value: Any) -> dict[str, object]:
    said: dict[str, object] = {}
    for field_ in _fields(type(value)):  # type: ignore[arg-type]
        content = getattr(value, field_.name)
        if content is None and field_.default is None:
            continue
        if field_.metadata == INLINE:
            said |= plain(content)
        else:
            said[field_.name] = plain(content)
    return said


@cache
def _fields(kind: Any) -> tuple[Field[Any], ...]:
    return fields(kind)


def written(value: Any) -> bytes:
    return json.dumps(plain(value), separators=(",", ":")).encode()


def read(kind: type[T], data: Any, what: str = "") -> T:
    """The value that `plain` was given. What a later version has added, at any depth, is ignored.
    Raises ProtocolError if something is missing or wrong.
    """
    try:
        value: T = _reader(kind).validate_python(data, extra="ignore")
        return value
    except ValidationError as error:
        raise _unreadable(what or getattr(kind, "__name__", str(kind)), error) from None


def read_message(kind: type[M], data: bytes) -> M:
    """The message in `data`. Raises ProtocolError if there is no such message."""
    try:
        message: M = _reader(kind).validate_json(data or b"{}", extra="ignore")
        return message
    except ValidationError as error:
        raise _unreadable(f"message {kind.action}", error) from None


def read_answer(message: Message[A], data: Any) -> A:
    answer: Any = None
    if message.answer is not NoneType:
        answer = read(message.answer, data, f"the answer to {message.action}")
    typed: A = answer
    return typed


def _unreadable(what: str, error: ValidationError) -> ProtocolError:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return ProtocolError(f"{what}: {where}: {first['msg']}")


_readers: dict[Any, TypeAdapter[Any]] = {}


def _reader(kind: Any) -> TypeAdapter[Any]:
    if kind not in _readers:
        _readers[kind] = TypeAdapter(kind)
    return _readers[kind]
