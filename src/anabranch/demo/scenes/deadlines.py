"""Queries with deadlines: admitted and met, or refused where the deadline cannot hold."""

from __future__ import annotations

from anabranch.coordinator.base.reports import SystemStatus
from anabranch.coordinator.status.description import primaries
from anabranch.demo.scenes.host import Scene, SceneHost, SceneOutcome
from anabranch.errors import AnabranchError

RADAR_TPS, CARS_TPS = 50, 400
SCRIPT = """
CREATE STREAM radar (value BIGINT, distance DOUBLE)
  FROM rate(tps = {radar_tps}, rows = {radar}, distance = '60 - value * 0.1') AT room1;
CREATE STREAM cars (value BIGINT, car BIGINT, distance DOUBLE, speed DOUBLE)
  SHED ABOVE 200/s KEEP BY -distance
  FROM rate(tps = {cars_tps}, rows = {cars}, car = 'value % 7', distance = '(value * 37) % 200',
            speed = '5 + value % 30') AT room1;
CREATE QUERY control AS
  SELECT value, distance < 25 AS brake FROM radar
  DEADLINE 500ms INTO jsonl(path = 'control.jsonl') AT room1;
CREATE QUERY warning AS
  SELECT car, round(distance / speed, 2) AS seconds FROM cars WHERE distance / speed < 2
  DEADLINE 1s INTO jsonl(path = 'warning.jsonl') ON desk AT desk;
"""
TOO_MUCH = """
CREATE QUERY now AS SELECT value FROM radar
  DEADLINE 1ms COST 5ms INTO jsonl(path = 'now.jsonl') AT room1;
"""


class DeadlinesScene(Scene):
    title = "Deadlines are promised before a query runs, and the earliest goes first"

    def __init__(self, seconds: int = 10) -> None:
        self._seconds = seconds

    def play(self, host: SceneHost) -> SceneOutcome:
        host.execute(
            SCRIPT.format(
                radar_tps=RADAR_TPS,
                radar=RADAR_TPS * self._seconds,
                cars_tps=CARS_TPS,
                cars=CARS_TPS * self._seconds,
            )
        )
        refused = _refused(host)
        status = host.wait(_ended, "Radar and other cars' reports, due in 500 ms and 1 s", 60)
        judged = {
            one.query: (one.judged, one.late) for one in primaries(status.sites) if one.deadline_ms
        }
        (shed,) = {one.shed for one in status.sources() if one.stream == "cars"}
        host.drop_all()
        results = sum(count for count, _ in judged.values())
        in_time = results - sum(late for _, late in judged.values())
        return SceneOutcome(
            f"{in_time:,} of {results:,} results were in time, while {shed:,} reports of the"
            f" farthest cars were shed; a query due in 1 ms was {refused}.",
            bool(judged) and bool(results) and refused != "admitted",
        )


def _refused(host: SceneHost) -> str:
    try:
        host.execute(TOO_MUCH)
    except AnabranchError as error:
        return f"refused ({error.message})"
    return "admitted"


def _ended(status: SystemStatus) -> bool:
    return all(status.states[name].state == "done" for name in ("control", "warning"))
