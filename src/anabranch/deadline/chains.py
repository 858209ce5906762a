"""Chains that will be one task anyway become one operator of the program.

(6) adds up the costs of all operators of a site that may be due earlier. The links of a chain can
only run one after another, so it would count the first ones several times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch.deadline.problem import Operator, Pair, Problem


@dataclass(frozen=True)
class Merged:
    """`problem` with chains as single operators, named after their last link. `links` are the
    original operators of each, upstream first.
    """

    problem: Problem
    links: dict[str, tuple[Operator, ...]]

    def sites(self, placement: dict[str, str]) -> dict[str, str]:
        """The site of every original operator."""
        return {one.name: placement[name] for name, links in self.links.items() for one in links}

    def split(self, deadlines: dict[Pair, float]) -> dict[Pair, float]:
        """The sub-deadline of every original operator: each link's share is its share of the cost,
        so all links of a chain keep the same laxity ratio.
        """
        shares: dict[Pair, float] = {}
        for (output, name), deadline in deadlines.items():
            whole = sum(one.cost for one in self.links[name])
            for one in self.links[name]:
                shares[output, one.name] = deadline * one.cost / whole
        return shares


def merge(problem: Problem) -> Merged:
    """Merges an operator with its reader if nobody else reads it, and the reader reads nothing else
    and may run at the same sites. An output in the middle keeps a chain from being merged.
    """
    final = {one.operator for one in problem.outputs}
    chains: dict[str, list[Operator]] = {}
    for operator in problem.topological:
        chain = [operator]
        if len(operator.inputs) == 1 and operator.inputs[0] in chains:
            before = chains[operator.inputs[0]][-1]
            alone = problem.readers[before.name] == (operator.name,) and before.name not in final
            if alone and set(before.sites) == set(operator.sites):
                chain = [*chains.pop(before.name), operator]
        chains[operator.name] = chain
    operators = tuple(_one(chain) for chain in chains.values())
    merged = replace(problem, operators=operators)
    return Merged(merged, {name: tuple(chain) for name, chain in chains.items()})


def _one(chain: list[Operator]) -> Operator:
    first, last = chain[0], chain[-1]
    return replace(
        last,
        cost=sum(one.cost for one in chain),
        inputs=first.inputs,
        load=sum(one.load for one in chain),
        size=sum(one.size for one in chain),
    )
