"""What several queries, or several parts of one, need is computed once.

Nodes are named after what they compute, wherever they do so: two nodes that compute the same have
one name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from anabranch.plan.expressions import Use
from anabranch.plan.operators import Node
from anabranch.plan.rules.base import Graph, renamed, with_ports


def share(graph: Graph, running: Mapping[str, str]) -> Graph:
    """`running` are nodes that others have started already, and their sites. A node with state is
    not shared with them, nor one that has read of the past what we are still to read.
    """
    names, shared = _shared(graph, running)
    return replace(graph, nodes=(*shared, _reading(graph.nodes[-1], names)))


def shared_names(graph: Graph, running: Mapping[str, str] | None = None) -> dict[str, str]:
    """The shared name of each node but the last: all nodes that compute the same have it."""
    return _shared(graph, running or {})[0]


def _shared(graph: Graph, running: Mapping[str, str]) -> tuple[dict[str, str], list[Node]]:
    *inner, output = graph.nodes
    names: dict[str, str] = {}
    shared: dict[str, Node] = {}
    for node in inner:
        same = _normal(_reading(node, names))
        name = _name(same)
        begins = same.stateful or any(port.past for port in same.inputs)
        if begins and name in running:
            name = f"{name}~{output.name}"
        names[node.name] = name
        site = running.get(name, node.site)
        shared.setdefault(name, same.model_copy(update={"name": name, "site": site}))
    return names, list(shared.values())


def _reading(node: Node, names: dict[str, str]) -> Node:
    ports = [
        one.model_copy(update={"stream": names.get(one.stream, one.stream)}) for one in node.inputs
    ]
    return with_ports(node, ports, node.operators)


def _normal(node: Node) -> Node:
    """The node with inputs named by their place, since each query may name them differently."""
    aliases = {port.alias: _alias(node, index) for index, port in enumerate(node.inputs)}

    def change(use: Use) -> Use:
        return Use(input=aliases.get(use.input, use.input), column=use.column)

    ports = [one.model_copy(update={"alias": aliases[one.alias]}) for one in node.inputs]
    return with_ports(node, ports, renamed(node.operators, change))


def _alias(node: Node, index: int) -> str:
    stem = node.inputs[index].stream.partition("~")[0]
    earlier = [port.stream.partition("~")[0] for port in node.inputs[:index]]
    return stem if stem not in earlier else f"{stem} {earlier.count(stem) + 1}"


def _name(node: Node) -> str:
    content = node.model_copy(update={"name": "", "site": ""}).model_dump_json()
    stem = "+".join(port.stream.partition("~")[0] for port in node.inputs)
    return f"{stem}~{hashlib.sha256(content.encode()).hexdigest()[:8]}"
