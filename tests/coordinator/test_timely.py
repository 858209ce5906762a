"""Re-placement and deadlines: what does not hold where it is moves, what would break one stays."""

from __future__ import annotations

from anabranch.config.cluster import ClusterConfig
from anabranch.coordinator.base.catalog import IN_MEMORY, Catalog
from anabranch.coordinator.base.reports import Moved, Replan
from anabranch.coordinator.placement.deadlines import Deadlines
from anabranch.coordinator.placement.placing import BREAKS, with_deadlines
from anabranch.plan.catalog import AnyDef
from anabranch.plan.spec import Where
from tests.coordinator.test_replan import FakeSites
from tests.language.fakes import bind, define

SITES = ("centre", "room1", "room2")
STREAM = "CREATE STREAM S (Temp DOUBLE) FROM rate(tps = 10) AT room1"


def catalog(**queries: str) -> dict[str, AnyDef]:
    """All at room1 now; those without AT may be anywhere."""
    known: dict[str, AnyDef] = {one.name: one for one in define(STREAM)}
    for name, text in queries.items():
        query = bind(f"CREATE QUERY {name} AS {text} AT room1", lookup=known.get)
        free = query.model_copy(update={"where": Where()})
        known[name] = query if name.startswith("pinned") else free
    return known


def look(known: dict[str, AnyDef], *moves: Moved) -> Replan:
    kept = Catalog(IN_MEMORY)
    kept.change(add=known.values(), drop=())
    sites: object = FakeSites(*SITES)
    deadlines = Deadlines(sites, kept, ClusterConfig())  # type: ignore[arg-type]
    return with_deadlines(Replan(10.0, 5.0, moves), known, deadlines, SITES)


URGENT = "SELECT Temp FROM S DEADLINE 15ms COST 10ms"


def test_a_query_whose_deadline_does_not_hold_goes_where_it_does() -> None:
    """10 ms of each, due in 15 ms, do not fit at one site."""
    found = look(catalog(pinned=URGENT, free=URGENT))
    assert [(one.task, one.was_at, one.why) for one in found.moves] == [
        ("free", "room1", "for DEADLINE 15ms of free")
    ]
    assert found.moves[0].site in ("centre", "room2")


def test_before_deadlines_hold_nothing_else_moves() -> None:
    known = catalog(pinned=URGENT, free=URGENT, slow="SELECT Temp FROM S")
    found = look(known, Moved("slow", "room1", "centre"))
    assert [one.task for one in found.moves] == ["free"]


def test_what_holds_stays_and_the_others_move_past_it() -> None:
    known = catalog(free=URGENT, slow="SELECT Temp FROM S")
    move = Moved("slow", "room1", "centre")
    assert look(known, move).moves == (move,)


def test_what_holds_nowhere_stays() -> None:
    known = catalog(pinned=URGENT, free="SELECT Temp FROM S DEADLINE 5ms COST 10ms")
    assert look(known).moves == ()


def test_a_move_that_would_break_a_deadline_is_not_made() -> None:
    """Two that read each other's site: 10 ms of an upstream task would then be in the way."""
    known = catalog(
        pinned="SELECT Temp FROM S DEADLINE 15ms COST 10ms",
        other="SELECT Temp FROM S DEADLINE 15ms COST 10ms",
    )
    elsewhere = known["other"]
    there = {
        "site": "room2",
        "nodes": tuple(node.model_copy(update={"site": "room2"}) for node in elsewhere.nodes),
    }  # type: ignore[union-attr]
    known["other"] = elsewhere.model_copy(update=there)
    found = look(known, Moved("other", "room2", "room1"))
    assert found.moves == ()
    assert found.stays["other"] == BREAKS
    assert found.saved == 0


def test_what_a_deadline_waits_for_moves_though_it_has_none_itself() -> None:
    """The query with the deadline is pinned; what it reads may go where there is time for it."""
    known = catalog(pinned=URGENT, near="SELECT Temp FROM S COST 10ms")
    text = "CREATE QUERY pinned2 AS SELECT Temp FROM near DEADLINE 40ms COST 1ms AT room2"
    known["pinned2"] = bind(text, lookup=known.get)
    assert look(known).moves == ()
    text = "CREATE QUERY pinned2 AS SELECT Temp FROM near DEADLINE 15ms COST 1ms AT room2"
    known["pinned2"] = bind(text, lookup=known.get)
    (move,) = look(known).moves
    assert (move.task, move.was_at, move.why) == ("near", "room1", "for DEADLINE 15ms of pinned2")


def test_what_a_pinned_query_shares_stays() -> None:
    known = catalog(pinned=URGENT, free=URGENT)
    shared = known["free"].nodes[0]  # type: ignore[union-attr]
    both = known["pinned"].model_copy(update={"nodes": (shared, *known["pinned"].nodes)})  # type: ignore[union-attr]
    assert look({**known, "pinned": both}).moves == ()
