"""A processing tree as a picture: tuples flow from the sources on the left to the right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

from anabranch.plan.tree import Branch

_WIDTH, _GAP_X, _GAP_Y, _LINE, _PAD, _MARGIN = 210, 46, 18, 15, 9, 24
_CHARACTERS = 30
_COLOURS = ("#dbeafe", "#dcfce7", "#fef3c7", "#fce7f3", "#ede9fe", "#ffedd5", "#ccfbf1", "#e5e7eb")


@dataclass(frozen=True)
class _Box:
    lines: tuple[str, ...]
    site: str
    x: int
    y: int
    height: int
    inputs: tuple[_Box, ...]
    links: tuple[str, ...]
    """Beside each input, the name of the link it comes over, or nothing."""

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
        parts.append(f'<text x="{_MARGIN}" y="{y + 6}" class="title">{escape(title)}</text>')
        root, bottom = _place(tree, _depth(tree), y + 24)
        parts += _drawn(root, colours)
        width = max(width, root.x + _WIDTH)
        y = bottom + _MARGIN
    legend, legend_width = _legend(colours, y)
    size = f'width="{max(width, legend_width) + _MARGIN}" height="{y + 30}"'
    style = (
        "text{font:12px system-ui,sans-serif;fill:#111827}.title{font-weight:600;font-size:14px}"
        ".link{fill:none;stroke:#6b7280;stroke-width:1.5}.far{stroke-dasharray:5 3}"
        ".name{font-size:10px;fill:#4b5563}.box{stroke:#374151;stroke-width:1}"
    )
    arrow = (
        '<defs><marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="#6b7280"/></marker></defs>'
    )
    body = "\n".join([*parts, *legend])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>{arrow}\n'
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
    """Boxes from here to the farthest source, one above the other; links are lines."""
    below = max((_depth(inner) for inner in branch.inputs), default=0)
    return below if _is_link(branch) else below + 1


def _place(branch: Branch, depth: int, top: int) -> tuple[_Box, int]:
    """The box of `branch` in the column `depth`, and the y below all of its inputs."""
    links, boxes, bottom = [], [], top
    for inner in branch.inputs:
        link = ""
        while _is_link(inner):
            link, inner = inner.text.removeprefix("link "), inner.inputs[0]
        box, bottom = _place(inner, depth - 1, bottom)
        boxes.append(box)
        links.append(link)
    lines = tuple(wrap(branch.text.replace("  [", " ["), _CHARACTERS)) or ("",)
    height = len(lines) * _LINE + 2 * _PAD
    x = _MARGIN + (depth - 1) * (_WIDTH + _GAP_X)
    if not boxes:
        return _Box(lines, branch.site, x, top, height, (), ()), top + height + _GAP_Y
    middle = (boxes[0].middle + boxes[-1].middle) // 2
    y = max(top, middle - height // 2)
    box = _Box(lines, branch.site, x, y, height, tuple(boxes), tuple(links))
    return box, max(bottom, y + height + _GAP_Y)


def _drawn(box: _Box, colours: dict[str, str]) -> Iterator[str]:
    for inner, link in zip(box.inputs, box.links, strict=True):
        yield from _drawn(inner, colours)
        x1, y1, x2, y2 = inner.x + _WIDTH, inner.middle, box.x, box.middle
        bend = (x1 + x2) // 2
        far = " far" if link else ""
        yield (
            f'<path class="link{far}" marker-end="url(#to)" '
            f'd="M{x1} {y1} C{bend} {y1} {bend} {y2} {x2} {y2}"/>'
        )
        if link:
            yield f'<text class="name" x="{x1 + 4}" y="{y1 - 5}">{escape(link)}</text>'
    yield (
        f'<rect class="box" x="{box.x}" y="{box.y}" width="{_WIDTH}" height="{box.height}" rx="5" '
        f'fill="{colours[box.site]}"><title>{escape(box.site)}</title></rect>'
    )
    for n, line in enumerate(box.lines):
        y = box.y + _PAD + 11 + n * _LINE
        yield f'<text x="{box.x + _PAD}" y="{y}">{escape(line)}</text>'


def _legend(colours: dict[str, str], y: int) -> tuple[list[str], int]:
    parts, x = [], _MARGIN
    for site, colour in colours.items():
        parts.append(
            f'<rect class="box" x="{x}" y="{y - 11}" width="14" height="14" rx="3" '
            f'fill="{colour}"/><text x="{x + 20}" y="{y}">{escape(site)}</text>'
        )
        x += 44 + 7 * len(site)
    return parts, x
