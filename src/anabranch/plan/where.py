"""The sites where a query may run, as its AT and NOT AT say."""

from __future__ import annotations

from anabranch.plan.spec import Spec


class Where(Spec):
    """The query's own node is at one of `at`, or anywhere if that is empty; nothing of the query is
    at `never`. Nodes that are made out of the query, such as a selection near its stream, may be
    elsewhere.
    """

    at: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    @property
    def pinned(self) -> bool:
        return len(self.at) == 1
