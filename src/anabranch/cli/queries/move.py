"""`anabranch move`, `replan` and `network`: where operators run, where they should, and what is
known of the network between sites.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from anabranch.cli.show.tables import err, out, plain_table, working
from anabranch.coordinator.base.reports import Moved, Replan, Sample
from anabranch.coordinator.requests import MoveQuery, Picture, ReplanAll, Samples
from anabranch.coordinator.service.state import find_coordinator
from anabranch.errors import ConfigError
from anabranch.link.message import plain

MOVE_S = 240.0


def move(query: str, site: str, state: Path) -> None:
    coordinator = find_coordinator(state)
    begun = time.monotonic()
    with working(f"Moving {query} to {site} …"):
        was_at = coordinator.send(MoveQuery(query, site), MOVE_S)
    took = time.monotonic() - begun
    err.print(f"query {query} moved from {was_at} to {site} in {took:.1f} s")


REPLAN_S = 600.0
NETWORK_S = 30.0


def replan(state: Path, *, dry_run: bool, as_json: bool) -> None:
    coordinator = find_coordinator(state)
    with err.status("Placing …" if dry_run else "Placing and moving …"):
        plan = coordinator.send(ReplanAll(dry_run), REPLAN_S)
    if as_json:
        out.print(json.dumps(plan.to_dict(), indent=2), markup=False, highlight=False)
        return
    for line in _told(plan, dry_run=dry_run):
        out.print(line, markup=False, highlight=False)


def _told(plan: Replan, *, dry_run: bool) -> Iterator[Any]:
    if plan.moves:
        rows = [_row(one, dry_run=dry_run) for one in plan.moves]
        yield plain_table(("operator", "from", "to", "" if dry_run else "output paused"), rows)
        if plan.saved > 0:
            verb = "would save" if dry_run else "saves"
            yield f"That {verb} {plan.saved:.0%} of the cost (rate · latency²)."
    else:
        yield "Everything is where it should be."
    for standby in plan.standbys:
        yield f"The standby of {standby.task} went from {standby.was_at} to {standby.site}."
    for name, why in plan.stays.items():
        yield f"{name} stays: {why}."


def _row(move: Moved, *, dry_run: bool) -> tuple[str, ...]:
    pause = "" if move.pause_ms is None else f"{move.pause_ms:.0f} ms"
    notes = [move.problem or ("" if dry_run else pause), move.why]
    return move.task, move.was_at, move.site, "; ".join(filter(None, notes))


def network(state: Path, export: Path | None, svg: Path | None, *, as_json: bool) -> None:
    coordinator = find_coordinator(state)
    samples = coordinator.send(Samples(), NETWORK_S)
    if svg:
        drawn = coordinator.send(Picture(), NETWORK_S)
        try:
            svg.write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot write it: {error.strerror}", place=str(svg)) from None
        err.print(f"wrote {svg}", markup=False)
    if as_json:
        out.print(json.dumps(plain(samples)), markup=False, highlight=False)
    if export:
        _export(samples, export)
        err.print(f"wrote {len(samples)} matrices to {export}", markup=False)
    if as_json or export or svg:
        return
    if not samples:
        out.print("Nothing has been measured yet.")
        return
    latest = samples[-1].latency_s
    sites = sorted(latest)
    rows = [
        (site, *(_ms(latest[site].get(other)) if other != site else "" for other in sites))
        for site in sites
    ]
    out.print(plain_table(("ms from, to", *sites), rows))


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.1f}"


def _export(samples: Sequence[Sample], folder: Path) -> None:
    """Writes one matrix a sample, as `python -m bench placement --data` reads them; 0 is a gap."""
    sites = sorted({site for one in samples for site in one.latency_s})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, sample in enumerate(samples):
            rows = (
                " ".join(str(sample.latency_s.get(a, {}).get(b, 0)) for b in sites) for a in sites
            )
            (folder / f"latency_{number}.txt").write_text("\n".join(rows) + "\n")
    except OSError as error:
        raise ConfigError(f"cannot write it: {error.strerror}", place=str(folder)) from None
