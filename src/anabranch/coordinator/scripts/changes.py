"""What a checked script asks for."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.coordinator.base.secrets import Kept
from anabranch.coordinator.scripts.replies import Answer
from anabranch.link.messages import GoOnWithout
from anabranch.plan.catalog import AnyDef


@dataclass
class Changes:
    """`add` in the order in which they can be made. Secrets to `keep` are there before anything
    names them, and those to `forget` until nothing does."""

    answers: list[Answer] = field(default_factory=list)
    add: list[AnyDef] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    keep: dict[str, Kept] = field(default_factory=dict)
    forget: list[str] = field(default_factory=list)
    give_up: tuple[str, GoOnWithout] | None = None
    """A site, and what a person gives up there. No other change comes with it."""
