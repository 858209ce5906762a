"""Windows computed from panes with at most three merges per pane and key, and without subtracting.

Van Herk, Gil and Werman's scheme: panes are grouped into blocks as long as a window, so a window is
the tail of one block and the head of the next. Tails are merged from a block's end backwards, heads
from its start forwards; a window merges one of each. Blocks begin at absolute pane numbers, so a
window's additions are associated the same way wherever the evaluation started.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from anabranch.window.aggregate.state import Dense, Layout, Part, Undo


class Slide:
    """Computes windows of `span` panes. Ask for windows in order."""

    def __init__(self, layout: Layout, span: int) -> None:
        self._span = span
        self._tail = Dense(layout)
        self._head = Dense(layout)
        self._block: int | None = None
        self._undo: list[tuple[int, Undo]] = []
        """How the tail gets shorter again: for each of its panes, the first pane last."""
        self._head_to = 0

    def window(self, first: int, panes: Mapping[int, Part], order: Sequence[int]) -> Part:
        """The window that begins with pane `first`. `order` lists the numbers of `panes` in order,
        with all that lie in the window.
        """
        block = first // self._span
        middle = (block + 1) * self._span
        if block != self._block:
            tail = order[bisect_left(order, first) : bisect_left(order, middle)]
            self._begin(block, [(pane, panes[pane]) for pane in tail])
        while self._undo and self._undo[-1][0] < first:
            self._tail.undo(self._undo.pop()[1])
        end = first + self._span
        for pane in order[bisect_left(order, self._head_to) : bisect_left(order, end)]:
            self._head.absorb(panes[pane])
        self._head_to = end
        return self._tail.merged(self._head)

    def _begin(self, block: int, panes: Sequence[tuple[int, Part]]) -> None:
        """Begins a block. Each pane of the tail changes only the keys it holds, so only these are
        kept.
        """
        self._block = block
        self._tail.clear()
        self._head.clear()
        self._undo = [(q, self._tail.absorb(part, earlier=True)) for q, part in reversed(panes)]
        self._head_to = (block + 1) * self._span
