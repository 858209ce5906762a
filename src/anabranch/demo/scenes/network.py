"""A query without AT: the system places it, and moves it when the network changes."""

from __future__ import annotations

import json
import time

from anabranch.coordinator.base.reports import Replan, SystemStatus
from anabranch.demo.apartment import DESK, HUBS, ROOMS
from anabranch.demo.scenes.host import Scene, SceneHost, SceneOutcome
from anabranch.errors import TaskError

NEAR_S, FAR_S = 0.005, 0.060
TPS = 20
START_US = 1_700_000_000_000_000
ABOVE = 55
FILE = "both.jsonl"
PATIENCE_S = 40.0
WORTH = 0.3
"""What a move is to save: not the first that the changing samples suggest."""
SCRIPT = """
CREATE STREAM kitchen (value BIGINT, celsius DOUBLE) FROM rate(tps = {tps}, rows = {rows},
  start = {start}, celsius = '40 + value % 30') AT room1;
CREATE STREAM hall (value BIGINT, celsius DOUBLE) FROM rate(tps = {tps}, rows = {rows},
  start = {start}, celsius = '41 + value % 20') AT room3;
CREATE QUERY both AS
  SELECT kitchen.value, kitchen.celsius AS kitchen, hall.celsius AS hall
  FROM kitchen[1s], hall[1s]
  WHERE kitchen.value = hall.value AND kitchen.celsius + hall.celsius > {above}
  INTO jsonl(path = '{file}') ON desk NOT AT ANY OF (centre, centre2);
"""


def expected(rows: int) -> list[int]:
    """The values that both rooms have measured, at times when both are hot."""
    return [n for n in range(rows) if 40 + n % 30 + 41 + n % 20 > 2 * ABOVE]


def delays(near: str) -> dict[str, dict[str, float]]:
    """All sites are far from each other, but one that is near to all."""
    sites = (*ROOMS, DESK, *HUBS)
    return {
        one: {other: NEAR_S if near in (one, other) else FAR_S for other in sites if other != one}
        for one in sites
    }


def none() -> dict[str, dict[str, float]]:
    sites = (*ROOMS, DESK, *HUBS)
    return {one: {other: 0.0 for other in sites if other != one} for one in sites}


class NetworkScene(Scene):
    title = "A query without AT is placed by the network, and moved when that changes"

    def __init__(self, seconds: int = 28) -> None:
        self._rows = TPS * seconds

    def play(self, host: SceneHost) -> SceneOutcome:
        first, second = HUBS
        try:
            host.delay(delays(first))
            self._measured(host, first)
            host.execute(
                SCRIPT.format(tps=TPS, rows=self._rows, start=START_US, above=2 * ABOVE, file=FILE)
            )
            at = self._joined_at(host)
            host.wait(lambda status: (host.folder / FILE).exists(), f"{at} joins two rooms", 30)
            host.delay(delays(second))
            replan = self._replanned(host, at)
            moved = self._joined_at(host)
            host.wait(lambda status: self._ended(status), "Waiting for the last results", 90)
        finally:
            host.delay(none())
        rows = [json.loads(line) for line in (host.folder / FILE).read_text().splitlines()]
        right = [row["value"] for row in rows] == expected(self._rows)
        host.drop_all()
        return _told(at, moved, replan, right, len(rows))

    def _measured(self, host: SceneHost, near: str) -> None:
        """Waits until most round trips to `near` have been measured as they are now."""

        def seen(status: SystemStatus) -> bool:
            trips = {one.site: one.round_trips for one in status.sites}
            return all(near in trips.get(site, {}) for site in (*ROOMS, DESK))

        host.wait(seen, "Measuring the network between the sites", PATIENCE_S)
        time.sleep(3.0)  # a few samples of it

    def _joined_at(self, host: SceneHost) -> str:
        (site,) = {
            task.site
            for task in host.status().tasks()
            if task.name == "both" and task.role == "primary"
        }
        return site

    def _replanned(self, host: SceneHost, at: str) -> Replan:
        """Plans again, once the network has been measured often enough to show that another place
        is better.
        """
        host.progress("The network changes …")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            replan = host.coordinator.replan(dry_run=True)
            if replan.saved > WORTH and any(one.task == "both" for one in replan.moves):
                return host.coordinator.replan(dry_run=False)
            time.sleep(0.5)
        raise TaskError(f"the network changed and the join stayed at {at}")

    def _ended(self, status: SystemStatus) -> bool:
        return status.states["both"].state == "done"


def _told(at: str, moved: str, replan: Replan, right: bool, rows: int) -> SceneOutcome:
    pauses = [one.pause_ms for one in replan.moves if one.pause_ms is not None]
    pause = f" with a pause of {max(pauses):,.0f} ms" if pauses else ""
    verdict = "none lost or repeated" if right else "NOT those of a run without moves"
    return SceneOutcome(
        f"The join was placed at {at}; when the network changed it went on at {moved}{pause}, which"
        f" saves {replan.saved:.0%} of Σ rate · latency²: {rows} results, {verdict}.",
        right and at != moved,
    )
