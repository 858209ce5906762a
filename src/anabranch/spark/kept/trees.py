"""Reading and rebuilding Spark's plans from here, where no closure can be handed to the JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from py4j.java_gateway import JavaObject, JVMView

from anabranch.spark.kept.handles import handles_of, named

Change = Callable[[JavaObject], JavaObject]
_PASSING = {"CoalesceExec", "InputAdapter", "WholeStageCodegenExec"}
"""Nodes that give their child's rows."""


def listed(sequence: JavaObject) -> list[JavaObject]:
    """The items of a Scala `Seq`."""
    return [sequence.apply(i) for i in range(sequence.size())]


def scala_seq(jvm: JVMView, items: Sequence[JavaObject]) -> JavaObject:
    made = named(jvm, "java.util.ArrayList")()
    for item in items:
        made.add(item)
    return named(jvm, "scala.jdk.javaapi.CollectionConverters").asScala(made).toSeq()


def kind(node: JavaObject) -> str:
    """The name of its class, without the package."""
    return str(node.getClass().getSimpleName())


def walk(node: JavaObject) -> Iterator[JavaObject]:
    """The node and all below it, in a plan or in an expression."""
    yield node
    for child in listed(node.children()):
        yield from walk(child)


def rebuilt(jvm: JVMView, node: JavaObject, change: Change) -> JavaObject:
    """The plan after `change` of each node, whose children have been changed before it. `change`
    returns the very node where there is nothing to do."""
    children = listed(node.children())
    changed = [rebuilt(jvm, child, change) for child in children]
    if any(new is not old for new, old in zip(changed, children, strict=True)):
        node = node.withNewChildren(scala_seq(jvm, changed))
    return change(node)


def with_expressions(
    jvm: JVMView, plan: JavaObject, pairs: Sequence[tuple[JavaObject, JavaObject]]
) -> JavaObject:
    """`plan` with the second of each pair in the place of the first, wherever that stands.
    (A Scala `Map` is a partial function, so it does for a rule.)"""
    rule = handles_of(jvm).module("scala.collection.immutable.Map$").empty()
    for old, new in pairs:
        rule = rule.updated(old, new)
    return plan.transformAllExpressions(rule)


@dataclass
class Origins:
    """What becomes of the columns of a plan's leaf."""

    outputs: list[str | None]
    """For each output the column that it is, unchanged; None if it is computed."""
    read: set[str] = field(default_factory=set)
    """Those that something is computed of."""
    keeps_rows: bool = True
    """Each row of the input gives one, in order."""


def origins(plan: JavaObject, names: Sequence[str]) -> Origins | None:
    """None if that cannot be told of `plan`, whose leaf has the columns `names`."""
    top = node = plan
    above: list[JavaObject] = []
    while not node.children().isEmpty():
        if kind(node) in ("ProjectExec", "FilterExec"):
            above.append(node)
        elif kind(node) not in _PASSING:
            return None
        node = node.children().apply(0)
    if kind(node) != "RDDScanExec":
        return None
    found = Origins([])
    known = dict(zip((_id(one) for one in listed(node.output())), names, strict=True))
    for node in reversed(above):
        if kind(node) == "FilterExec":
            found.keeps_rows = False
            found.read |= {
                known[i] for i in _ids(node.condition().references().toSeq()) & set(known)
            }
        else:
            known = _projected(node, known, found.read)
    found.outputs = [known.get(_id(one)) for one in listed(top.output())]
    return found


def _projected(node: JavaObject, known: dict[int, str], read: set[str]) -> dict[int, str]:
    """The columns that are there behind a projection; what it computes is of those in `read`."""
    there: dict[int, str] = {}
    for item in listed(node.projectList()):
        alias = item.nodeName() == "Alias"
        source = item.child() if alias else item
        if source.nodeName() != "AttributeReference":
            read |= {known[i] for i in _ids(source.references().toSeq()) & set(known)}
        elif (i := _id(source)) in known:
            there[_id(item)] = known[i]
    return there


def _id(attribute: JavaObject) -> int:
    return int(attribute.exprId().id())


def _ids(attributes: JavaObject) -> set[int]:
    return {_id(one) for one in listed(attributes)}
