"""A processing tree as a picture: tuples flow from the sources on the left to the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from anabranch.plan.tree import Branch

_WIDTH, _GAP_X, _GAP_Y, _LINE, _PAD, _MARGIN = 244, 40, 16, 14, 10, 24
_HEAD, _FOOT = 16, 15
_CHARACTERS = 33  # of the body's fixed width, 11 px high
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#111827}"
    ".title{font-weight:600;font-size:15px}.head{font-weight:600}"
    ".body{font:11px ui-monospace,'DejaVu Sans Mono',monospace;fill:#1f2937;white-space:pre}"
    ".foot{font-size:10px;fill:#6b7280}.box{stroke:#374151;stroke-width:1}"
    ".line{fill:none;stroke:#6b7280;stroke-width:1.5}.far{stroke-dasharray:5 3}"
)
_ARROW = (
    '<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0 8 4 0 8z" fill="#6b7280"/></marker></defs>'
)
_COLOURS = ("#dbeafe", "#dcfce7", "#fef3c7", "#fce7f3", "#ede9fe", "#ffedd5", "#ccfbf1", "#e5e7eb")
_HEADS_OF_TWO = ("partial", "stream", "table")
"""Words that the next one belongs to: `partial join`, `stream Sensor1`."""


@dataclass(frozen=True)
class _Box:
    """`head` says what it does, `body` to what, `foot` where and for whom."""

    head: str
    body: tuple[str, ...]
    foot: str
    site: str
    x: int
    y: int
    inputs: tuple[_Box, ...]
    far: tuple[bool, ...]
    """Beside each input, whether it comes from another site."""

    @property
    def height(self) -> int:
        return _height(self.body)

    @property
    def middle(self) -> int:
        return self.y + self.height // 2


def picture(trees: Sequence[tuple[str, Branch]]) -> str:
    """An SVG document of titled trees, one below the other, coloured by site."""
    sites = sorted({site for _, tree in trees for site in _sites(tree)})
    colours = {site: _COLOURS[n % len(_COLOURS)] for n, site in enumerate(sites)}
    parts: list[str] = []
    y, width = _MARGIN, 0
    for title, tree in trees:
        parts.append(f'<text x="{_MARGIN}" y="{y + 8}" class="title">{escape(title)}</text>')
        root, bottom = _place(tree, _depth(tree), y + 26)
        parts += _drawn(root, colours)
        width = max(width, root.x + _WIDTH, _MARGIN + 9 * len(title))
        y = bottom + _MARGIN
    legend, legend_width = _legend(colours, y)
    size = f'width="{max(width, legend_width) + _MARGIN}" height="{y + 30}"'
    body = "\n".join([*parts, *legend])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>{_ARROW}\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _is_link(branch: Branch) -> bool:
    return " → " in branch.site


def _sites(branch: Branch) -> Iterator[str]:
    if not _is_link(branch):
        yield branch.site
    for inner in branch.inputs:
        yield from _sites(inner)


def _depth(branch: Branch) -> int:
    """The number of boxes from here to the farthest source; links are lines and do not count."""
    below = max((_depth(inner) for inner in branch.inputs), default=0)
    return below if _is_link(branch) else below + 1


def _height(body: Sequence[str]) -> int:
    return 2 * _PAD + _HEAD + len(body) * _LINE + _FOOT


def _place(branch: Branch, depth: int, top: int) -> tuple[_Box, int]:
    """The box of `branch` in the column `depth`, below `top`, and the y below it and its inputs."""
    head, body, foot = _texts(branch)
    height, x = _height(body), _MARGIN + (depth - 1) * (_WIDTH + _GAP_X)
    far, boxes, bottom = [], [], top
    for inner in branch.inputs:
        link = _is_link(inner)
        box, bottom = _place(inner.inputs[0] if link else inner, depth - 1, bottom)
        boxes.append(box)
        far.append(link)
    y = top
    if boxes:
        y = max(top, (boxes[0].middle + boxes[-1].middle) // 2 - height // 2)
    box = _Box(head, body, foot, branch.site, x, y, tuple(boxes), tuple(far))
    return box, max(bottom, y + height + _GAP_Y)


def _texts(branch: Branch) -> tuple[str, tuple[str, ...], str]:
    text, _, node = branch.text.partition("  [")
    words = text.split(" ")
    count = 2 if words[0] in _HEADS_OF_TWO else 1
    texts = (" ".join(words[count:]), *branch.notes)
    lines = [line for one in texts for line in wrap(one, _CHARACTERS, break_on_hyphens=False)]
    name = node.removesuffix("]")
    return " ".join(words[:count]), tuple(lines), f"{branch.site} · {name}" if name else branch.site


def _drawn(box: _Box, colours: dict[str, str]) -> Iterator[str]:
    for inner, far in zip(box.inputs, box.far, strict=True):
        yield from _drawn(inner, colours)
        x1, y1, x2, y2 = inner.x + _WIDTH, inner.middle, box.x, box.middle
        bend = (x1 + x2) // 2
        yield (
            f'<path class="line{" far" if far else ""}" marker-end="url(#to)" '
            f'd="M{x1} {y1} C{bend} {y1} {bend} {y2} {x2} {y2}"/>'
        )
    yield (
        f'<rect class="box" x="{box.x}" y="{box.y}" width="{_WIDTH}" height="{box.height}" rx="6" '
        f'fill="{colours[box.site]}"/>'
    )
    x, y = box.x + _PAD, box.y + _PAD + 11
    yield f'<text class="head" x="{x}" y="{y}">{escape(box.head)}</text>'
    for line in box.body:
        y += _LINE if y > box.y + _PAD + 11 else _HEAD
        yield f'<text class="body" x="{x}" y="{y}">{escape(line)}</text>'
    foot = box.y + box.height - _PAD
    yield f'<text class="foot" x="{x}" y="{foot}">{escape(box.foot)}</text>'


def _legend(colours: dict[str, str], y: int) -> tuple[list[str], int]:
    parts, x = [], _MARGIN
    for site, colour in colours.items():
        parts.append(
            f'<rect class="box" x="{x}" y="{y - 11}" width="14" height="14" rx="3" '
            f'fill="{colour}"/><text x="{x + 20}" y="{y}">{escape(site)}</text>'
        )
        x += 44 + 7 * len(site)
    parts.append(
        f'<path class="line far" d="M{x} {y - 4} h30"/>'
        f'<text x="{x + 38}" y="{y}">from one site to another</text>'
    )
    return parts, x + 190
