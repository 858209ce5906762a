"""The documentation as tests see it: its pages, their code blocks, links and option tables."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from anabranch.connectors.options import Option, one_of
from anabranch.connectors.registry import Registry
from anabranch.units import show_duration

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


PRODUCT = ROOT / "src" / "anabranch"
_PLACE = re.compile(r"^(\d+\.|-) `([\w/]+\.py)`((?:, `[\w.]+`)+): [A-Z].*[.?]$")


@dataclass(frozen=True)
class Place:
    """A line such as "- `link/gate.py`, `Gate.answer`: What happens there." """

    number: str
    file: str
    names: tuple[str, ...]

    def check(self) -> None:
        """Asserts that what it names is there."""
        assert (PRODUCT / self.file).exists(), self.file
        missing = set(self.names) - names_in(self.file)
        assert not missing, f"{self.file} has no {missing}"


def place_of(line: str) -> Place:
    found = _PLACE.match(line)
    assert found, f"no place: {line}"
    return Place(found[1], found[2], tuple(re.findall(r"`([\w.]+)`", found[3])))


@cache
def names_in(file: str) -> set[str]:
    """What a module of the product defines, as `function`, `Class`, `Class.method` or `TABLE`."""
    tree = ast.parse((PRODUCT / file).read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, (*functions, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{one.name}" for one in node.body if isinstance(one, functions)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@dataclass(frozen=True)
class Block:
    """A fenced block: "```sql run" is of language `sql` and has the word `run`."""

    page: str
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def label(self) -> str:
        return f"{self.page}: {self.text.strip().splitlines()[0][:50]}"


def blocks(*languages: str) -> list[Block]:
    return [
        Block(page.name, language, tuple(words.split()), text)
        for page in PAGES
        for language, words, text in _BLOCK.findall(page.read_text(encoding="utf-8"))
        if language in languages
    ]


def links(page: Path) -> list[str]:
    """Where `page` points, other pages on the web apart."""
    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    return [link for link in _LINK.findall(prose) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(prose)
    }


def section(page: Path, title: str) -> str:
    """What stands under the heading `title`, up to the next one of any level."""
    text = page.read_text(encoding="utf-8")
    match = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", text, re.DOTALL | re.MULTILINE)
    assert match, f"{page.name} has no heading {title!r}"
    return match[1]


def table_rows(text: str) -> list[str]:
    """The rows of the first table in `text`, without its head."""
    return [line for line in text.splitlines() if line.startswith("|")][2:]


def option_rows(registry: Registry[Any], name: str) -> list[str]:
    """What the table of the options of `name` must hold, by what the code declares."""
    rows = [
        f"| `{option.name}` | {_takes(option)} | {_default(option)} | {option.help} |"
        for option in registry.find(name).options
    ]
    others = registry.find(name).others
    return [*rows, f"| any other | | | {others} |"] if others else rows


def _takes(option: Option) -> str:
    return one_of(option.choices) if option.choices else option.kind.expected


def _default(option: Option) -> str:
    if option.required:
        return "required"
    if option.default is None:
        return ""
    if option.kind.name == "duration":
        return f"`{show_duration(option.default)}`"
    if isinstance(option.default, bool):
        return f"`{str(option.default).upper()}`"
    return f"`{option.default!r}`"
