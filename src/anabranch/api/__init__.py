"""Anabranch from Python, without SQL text around the expressions.

    from anabranch import Cluster, source

    with Cluster.local("room1", "centre") as cluster:
        sensor = cluster.stream("sensor", {"celsius": "DOUBLE"}, at="room1",
                                source=source("file", path="readings.csv"))
        hot = sensor.where("celsius > 50").start("hot", at="centre")
        for row in hot:
            print(row["celsius"])

Everything here composes statements and hands them to the coordinator, so that both ways mean the
same; `docs/language.md` says what that is.
"""

from anabranch.api.cluster import Cluster
from anabranch.api.queries import Draft, Input, Query, Relation, join
from anabranch.api.relations import RunningPocket, Stream, Table
from anabranch.api.text import SinkCall, SourceCall, secret, sink, source
from anabranch.coordinator.scripts.replies import Answer

__all__ = [
    "Answer",
    "Cluster",
    "Draft",
    "Input",
    "Query",
    "Relation",
    "RunningPocket",
    "SinkCall",
    "SourceCall",
    "Stream",
    "Table",
    "join",
    "secret",
    "sink",
    "source",
]
