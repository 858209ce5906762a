"""What a checked script asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.coordinator.scripts.replies import Answer
from anabranch.plan.catalog import AnyDef


@dataclass
class Changes:
    """`add` in the order in which they can be made."""

    answers: list[Answer] = field(default_factory=list)
    add: list[AnyDef] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
