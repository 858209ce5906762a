"""What a catalog holds: streams from outside and queries, both of which are streams to others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from anabranch.plan.operators import Call, Column, Operator, Spec


class StreamDef(Spec):
    """A stream that a wrapper at `site` brings in.

    `timestamp` names the source field that holds event time; without it a tuple's event time is
    the moment it enters the system. Tuples later than `lateness_us` behind the newest one are
    counted and dropped before they get a position.
    """

    kind: Literal["stream"] = "stream"
    name: str
    columns: tuple[Column, ...]
    site: str
    source: Call
    timestamp: str | None = None
    lateness_us: int = 0
    text: str = ""
    base: str = ""
    """Folder that relative paths in `source` start from."""


class QueryDef(Spec):
    """A continuous query; its output is a stream of the same name."""

    kind: Literal["query"] = "query"
    name: str
    columns: tuple[Column, ...]
    site: str
    input: str
    alias: str
    operators: tuple[Operator, ...]
    sink: Call | None = None
    text: str = ""
    base: str = ""


Definition = Annotated[StreamDef | QueryDef, Field(discriminator="kind")]
