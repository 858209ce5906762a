"""Outside sources by name. A new one is a module here and a line in WRAPPERS."""

from __future__ import annotations

from anabranch.site.registry import Registry
from anabranch.site.wrappers.base import EVENT_TIME, Cursor, Replayable, SourceContext, Wrapper

__all__ = [
    "EVENT_TIME",
    "WRAPPERS",
    "Cursor",
    "Replayable",
    "SourceContext",
    "Wrapper",
    "make_wrapper",
]

WRAPPERS: Registry[Wrapper] = Registry(
    "source",
    {
        "file": "anabranch.site.wrappers.file:FileWrapper",
        "kafka": "anabranch.site.wrappers.kafka:KafkaWrapper",
        "python": "anabranch.site.wrappers.python:PythonWrapper",
        "rate": "anabranch.site.wrappers.rate:RateWrapper",
        "spark": "anabranch.site.wrappers.spark:SparkWrapper",
    },
)


def make_wrapper(name: str, context: SourceContext) -> Wrapper:
    """The wrapper called `name`, its options checked, not yet reading."""
    return WRAPPERS.find(name)(context)
