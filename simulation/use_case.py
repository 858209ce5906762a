"""The paper's use case, collision warning over two nodes (figure 2), and a placement as it was
before deadlines.
"""

from __future__ import annotations

from anabranch.deadline.forms import chosen, columns, lean
from anabranch.deadline.linear import Linear
from anabranch.deadline.problem import DeadlineOutput, DeadlineProblem, DeadlineSource, Operator

OUTPUTS = {"control": 0.030, "warning": 0.300, "information": 3.0}
"""Outputs 1, 2 and 3, with their deadlines."""
SENSOR, CENTRE = 10, 100
"""Tuples that come at once from the on-board sensor and from the centre."""
KEPT = 0.5
"""O3's selectivity."""
WARNING = ("O4", *(f"O{n}" for n in range(7, 22)))
"""The operators behind O3."""


def collision(v2v: int, per_tuple: float = 0.001, scale: float = 1.0) -> DeadlineProblem:
    """The use case with `v2v` tuples at once from other vehicles, each costing every operator
    `per_tuple` seconds. `scale` stretches the deadlines.
    """

    def operator(name: str, tuples: float, read: str, *sites: str, out: float = 0.0) -> Operator:
        return Operator(name, tuples * per_tuple, (read,), sites, traffic=out or tuples)

    warned = v2v * KEPT
    chain = zip(("O3", *WARNING), WARNING, strict=False)
    return DeadlineProblem(
        sites={"node1": 1, "node2": 1},
        sources=(
            DeadlineSource("sensor", "node1", SENSOR),
            DeadlineSource("v2v", "node1", v2v),
            DeadlineSource("centre", "node2", CENTRE),
        ),
        operators=(
            operator("O1", SENSOR, "sensor", "node1"),
            operator("O2", v2v, "v2v", "node1"),
            operator("O3", v2v, "O2", "node1", "node2", out=warned),
            *(operator(name, warned, before, "node2") for before, name in chain),
            operator("O6", CENTRE, "centre", "node2"),
            operator("O5", CENTRE, "O6", "node2"),
        ),
        outputs=(
            DeadlineOutput("control", "O1", OUTPUTS["control"] * scale, "node1"),
            DeadlineOutput("warning", "O21", OUTPUTS["warning"] * scale, "node2"),
            DeadlineOutput("information", "O5", OUTPUTS["information"] * scale, "node2"),
        ),
    )


def existing_placement(problem: DeadlineProblem, limit_s: float = 20.0) -> dict[str, str] | None:
    """Minimises the share of traffic that crosses sites plus the busiest site's share of all work;
    None if no placement keeps up with the load."""
    program = Linear()
    z = columns(program, problem)
    lean(program, problem, z, 1.0)
    busiest = program.column(cost=1.0)
    work = sum(one.cost for one in problem.operators)
    for site, slots in problem.sites.items():
        used = [
            (z[site, one.name], one.cost / work)
            for one in problem.operators
            if (site, one.name) in z
        ]
        program.row([(busiest, float(slots)), *((column, -part) for column, part in used)], 0)
    solution = program.solve(limit_s=limit_s)
    return chosen(z, solution) if solution else None
