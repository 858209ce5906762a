"""All that runs as one placement problem: what may move, what may not, and between what."""

from __future__ import annotations

from anabranch.placement.methods import placer
from anabranch.placement.network import NetworkSamples
from anabranch.plan.catalog import AnyDef, PocketDef, QueryDef, StreamDef
from anabranch.plan.costs import Rates
from anabranch.plan.placed import Surroundings, placed
from anabranch.plan.rules import rewritten
from anabranch.plan.spec import Program
from anabranch.plan.system import PlacedSystem
from tests.language.fakes import bind, define

SITES = ("room1", "room2", "centre")


def system(*queries: str, pocket: bool = False) -> dict[str, AnyDef]:
    known: dict[str, AnyDef] = {
        one.name: one
        for one in define("""
            CREATE STREAM A (k INT, v DOUBLE) FROM f() AT room1;
            CREATE STREAM C (k INT, v DOUBLE) FROM f() AT room2""")
    }
    running: dict[str, str] = {}
    for text in queries:
        query = bind(text, lookup=known.get)
        around = Surroundings(NetworkSamples.unmeasured(SITES), running=running)
        made = rewritten(query, known.__getitem__, running)  # type: ignore[arg-type]
        if not made.pinned:
            found = placed({made.name}, {**known, made.name: made}, around, placer("best"))
            made = found[made.name]  # type: ignore[assignment]
        known[made.name] = made
        running |= {node.name: node.site for node in made.nodes}
    if pocket:
        program = Program(code="", path="p.py", class_name="P")
        stream = known["A"]
        assert isinstance(stream, StreamDef)
        known["alarm"] = stream.model_copy(update={"name": "alarm", "source": None})
        known["P"] = PocketDef(name="P", input="q", output="alarm", site="room2", program=program)
    return known


JOIN = "CREATE QUERY q AS SELECT A.v FROM A[5s], C[5s] WHERE A.v > 1 AND C.v > 1"


def allowed(known: dict[str, AnyDef], rates: Rates | None = None) -> dict[str, set[str]]:
    problem = PlacedSystem(known, NetworkSamples.unmeasured(SITES), rates or Rates()).problem()
    rows = zip(problem.vertices, problem.allowed, strict=True)
    return {
        one.name: {site for site, may in zip(SITES, row, strict=True) if may} for one, row in rows
    }


def test_operators_may_move_and_the_rest_may_not() -> None:
    found = allowed(system(JOIN + " INTO f() ON centre"))
    assert found["A"] == {"room1"}
    assert found["q/sink"] == {"centre"}
    nodes = [name for name in found if name not in ("A", "C", "q/sink")]
    assert all(found[name] == set(SITES) for name in nodes)


def test_at_pins_and_not_at_restricts() -> None:
    assert all(len(sites) == 1 for sites in allowed(system(JOIN + " AT room2")).values())
    assert allowed(system(JOIN + " NOT AT centre"))["q"] == {"room1", "room2"}


def test_a_file_that_is_written_stays_and_a_table_of_a_server_does_not() -> None:
    known = system("CREATE QUERY q AS SELECT v FROM A INTO f()")
    assert "q/sink" in allowed(known)
    known["q"] = known["q"].model_copy(update={"sink_shared": True})
    assert "q/sink" not in allowed(known)


def test_a_pocket_stays_and_stands_between_its_input_and_those_who_read_it() -> None:
    known = system(JOIN, pocket=True)
    reader = bind("CREATE QUERY r AS SELECT v FROM alarm", lookup=known.get)
    known["r"] = reader
    problem = PlacedSystem(known, NetworkSamples.unmeasured(SITES)).problem()
    links = {(link.producer, link.consumer) for link in problem.links}
    assert ("q", "P") in links
    assert ("P", "r") in links
    assert "alarm" not in problem.index
    assert allowed(known)["P"] == {"room2"}
    stays = PlacedSystem(known, NetworkSamples.unmeasured(SITES)).stays
    assert stays == {"P": "a pocket never moves"}


def test_a_node_of_two_queries_may_be_where_both_may_be() -> None:
    known = system(JOIN + " NOT AT room1", JOIN.replace(" q ", " other ") + " NOT AT room2")
    shared = [name for name, sites in allowed(known).items() if sites == {"centre"}]
    queries = [one for one in known.values() if isinstance(one, QueryDef)]
    names = [{node.name for node in one.nodes} for one in queries]
    assert set(shared) >= (names[0] & names[1])


def test_measured_rates_decide() -> None:
    known = system("CREATE QUERY q AS SELECT v FROM A INTO f() ON centre")
    network = NetworkSamples.unmeasured(SITES)
    blown_up = PlacedSystem(known, network, Rates({"A": 1.0, "q": 50.0})).problem()
    assert placer("best").place(blown_up).sites["q"] == "centre"
    thinned = PlacedSystem(known, network, Rates({"A": 50.0, "q": 1.0})).problem()
    assert placer("best").place(thinned).sites["q"] == "room1"
