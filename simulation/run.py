"""One run, from its seed to its verdict."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from anabranch.errors import AnabranchError
from simulation import edges, faults, outages, plan, statements
from simulation.clock import Violation
from simulation.truths import past
from simulation.world import Suffered, World

DRAIN = 150_000
"""Milliseconds after the last fault within which everything must have arrived: a move that is
called off has waited for a minute."""
PATIENT_DRAIN = 400_000
"""The same if users are at work: a statement whose answer is lost is waited for for two minutes,
and may be so more than once."""
MOVING, MEASURING = 3, 8
"""Sources bring their tuples so much more slowly where tasks move, or the network is measured."""


@dataclass(frozen=True)
class Outcome:
    """`problem` is empty if all was well."""

    seed: int
    problem: str
    faults: int
    moved: int
    """How often a task was taken over, for whatever reason."""
    tuples: int
    """In the sinks."""
    ended: int
    """Virtual milliseconds."""
    events: int
    lines: list[str] = field(default_factory=list, compare=False)


def simulate(
    seed: int,
    *,
    trace: bool = False,
    moves: int = 0,
    changes: int = 0,
    replan_ms: int = 2000,
    standbys: int = 0,
    early: bool = False,
) -> Outcome:
    """With `moves`, so many of these and no faults; with `changes`, so many of the network, in
    which everything is placed anew every `replan_ms`; with `standbys`, so many around these.
    `early`: users drop and create queries, and things go wrong from the first moment on."""
    rng = Random(seed)
    drawn = plan.with_shelves(Random(f"shelves {seed}"), plan.draw(rng))
    drawn = plan.with_disks(Random(f"disks {seed}"), drawn)
    suffered: tuple[Suffered, ...]
    if moves:
        drawn = drawn.unhurried(rng, MOVING)
        suffered = faults.draw_moves(rng, drawn, moves)
    elif changes:
        drawn = replace(drawn.unhurried(rng, MEASURING), replan_ms=replan_ms)
        suffered = faults.draw_changes(rng, drawn, changes)
    elif standbys:
        suffered = faults.draw_standbys(rng, drawn, standbys)
    else:
        at_edges = edges.draw(Random(f"edges {seed}"), drawn)
        suffered = (*faults.draw(rng, drawn), *at_edges)
    lines: list[str] = []
    if trace:
        lines += _described(drawn)
    world = World(drawn, rng, lines if trace else None)
    asked = statements.draw(Random(f"statements {seed}"), drawn) if early else ()
    if early:
        crashes = edges.draw_crashes(Random(f"crashes {seed}"), drawn)
        machines = edges.draw_machines(Random(f"machines {seed}"), drawn)
        out = outages.draw(Random(f"outages {seed}"), drawn)
        suffered = (*suffered, *crashes, *machines, *out)
    if trace:
        lines += map(str, (*suffered, *asked))
    world.suffer(suffered, asked, at_once=early)
    drain = PATIENT_DRAIN if early else DRAIN
    problem = _run(world, max(one.at for one in suffered) + drain)
    world.close()
    tuples = sum(len(world.written(sink)) for sink in drawn.sinks)
    now, events = world.clock.now, world.clock.events
    return Outcome(seed, problem, len(suffered), world.moved, tuples, now, events, lines)


def _run(world: World, until: int) -> str:
    try:
        world.clock.run(until, lambda: world.done)
        world.user.check()
    except (Violation, AnabranchError, ValueError, AssertionError) as error:
        return f"at {world.clock.now}: {type(error).__name__}: {error}"
    wrong = world.wrong or next(past(world), "")
    if not wrong and not world.done and not world.gone:
        wrong = "what a user wants is not done yet"
    return f"at {world.clock.now}: {wrong}" if wrong else ""


def _described(drawn: plan.Plan) -> list[str]:
    sources = [f"source {s.name} at {s.site}: {len(s.rows)} tuples" for s in drawn.sources]
    tasks = [
        f"task {t.name} at {drawn.placed[t.name]} reads {', '.join(t.inputs)}: {t.kind},"
        f" batches of {t.batch}"
        for t in drawn.tasks
    ]
    tasks += [f"sink {one.name} at {one.site or 'the site of its query'}" for one in drawn.sinks]
    return [*sources, *tasks, str(drawn.pace)]
