"""Connectors by name: our own, and those that installed packages add by entry points."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.connectors import SINKS, SOURCES, TABLES, Registry, Sink, Source
from anabranch.connectors.files.line_sink import JsonlSink
from anabranch.errors import AnabranchError, ConfigError, SetupError

CLOCK = """
import pyarrow as pa
from anabranch.connectors import Source

class Clock(Source):
    def read(self):
        yield pa.table({"a": [1]})
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts packages into a folder as pip does: modules, and beside them what describes them."""
    before = {*sys.modules}
    monkeypatch.syspath_prepend(tmp_path)

    def do(package: str, points: str, group: str = "anabranch.sources", **modules: str) -> None:
        for name, code in modules.items():
            (tmp_path / f"{name}.py").write_text(code)
        described = tmp_path / f"{package}-1.2.dist-info"
        described.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n"
        (described / "METADATA").write_text(metadata)
        (described / "entry_points.txt").write_text(f"[{group}]\n{points}\n")

    yield do
    for name in {*sys.modules} - before:
        del sys.modules[name]


def sources() -> Registry[Source]:
    """As a process has them that begins now."""
    return Registry("source", Source, "anabranch.sources", {"own": "no.such:Own"})


def complaint(name: str) -> str:
    with pytest.raises(AnabranchError) as raised:
        sources().find(name)
    return raised.value.line()


def test_every_connector_of_ours_is_whole() -> None:
    for registry in (SOURCES, SINKS, TABLES):
        for name in registry:
            assert registry.find(name).lacking() == [], name


def test_what_a_package_declares_is_there_beside_our_own(install: Install) -> None:
    install("ticking", "clock = ticking:Clock", ticking=CLOCK)
    registry = sources()
    assert [*registry] == ["own", "clock"]
    assert len(registry) == 2
    assert "clock" in registry
    assert "ticking" not in sys.modules  # nobody has asked for it
    found = registry.find("clock")
    assert issubclass(found, Source)
    assert registry["clock"] is found


def test_other_groups_are_others(install: Install) -> None:
    install("ticking", "clock = ticking:Clock", "anabranch.sinks", ticking=CLOCK)
    assert [*sources()] == ["own"]
    assert complaint("clock") == "there is no source 'clock'. There is own."
    sinks = Registry("sink", Sink, "anabranch.sinks", {})
    with pytest.raises(SetupError, match="is no subclass of anabranch"):
        sinks.find("clock")


def test_a_name_that_is_nearly_one(install: Install) -> None:
    install("ticking", "clock = ticking:Clock", ticking=CLOCK)
    assert complaint("clok") == "there is no source 'clok'. Did you mean 'clock'?"


def test_a_missing_package_breaks_only_who_needs_it(install: Install) -> None:
    own = {"good": "anabranch.connectors.files.line_sink:JsonlSink", "bad": "no_such.x:Sink"}
    registry = Registry("sink", Sink, "anabranch.sinks", own)
    assert registry.find("good") is JsonlSink
    with pytest.raises(SetupError, match="bad\\(\\) needs the Python package 'no_such'"):
        registry.find("bad")
    with pytest.raises(ConfigError):
        registry.find("ugly")
    install("ticking", "clock = ticking:Clock", ticking="import no_driver\n")
    assert complaint("clock") == (
        "the source clock() needs the Python package 'no_driver'. "
        "Install it: pip install no_driver."
    )


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("1 / 0", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("import sys; sys.exit('no')", "cannot be loaded: SystemExit: no"),
        ("from anabranch.connectors import Wrapper", "cannot be loaded: ImportError: cannot"),
        ("class Clocks: pass", "cannot be loaded: AttributeError: module 'ticking' has no"),
        ("import ticking.hands", "cannot be loaded: No module named 'ticking.hands'"),
        ("Clock = 12", "is no subclass of anabranch.connectors.Source"),
        ("class Clock: pass", "is no subclass of anabranch.connectors.Source"),
        (
            "from anabranch.connectors import Source\nclass Clock(Source): pass",
            "does not define read",
        ),
        (
            "from anabranch.connectors import Source\nclass Clock(Source):\n"
            "    replayable = True\n    def read_from(self, cursor): yield",
            "does not define start_cursor, reread",
        ),
    ],
)
def test_a_package_that_is_broken(install: Install, code: str, why: str) -> None:
    install("ticking", "clock = ticking:Clock", ticking=code)
    line = complaint("clock")
    assert line.startswith(f"ticking:Clock: the source clock() of ticking 1.2 {why}")
    assert "Install a version of that package that fits anabranch " in line


def test_a_sink_that_promises_too_much(install: Install) -> None:
    code = (
        "from anabranch.connectors import Sink\nclass Drain(Sink):\n"
        "    resumable = deferred = True\n    def open(self, begin): pass\n"
    )
    install("draining", "drain = draining:Drain", "anabranch.sinks", draining=code)
    with pytest.raises(SetupError, match="does not define write, close, written, settle"):
        Registry("sink", Sink, "anabranch.sinks", {}).find("drain")


def test_a_name_in_two_packages(install: Install) -> None:
    install("ticking", "clock = ticking:Clock\nown = ticking:Clock", ticking=CLOCK)
    install("tocking", "clock = ticking:Clock")
    assert complaint("clock") == (
        "the source clock() is in 2 packages: ticking 1.2, tocking 1.2. "
        "Uninstall all but one of them."
    )
    assert "own() is in 2 packages: anabranch, ticking 1.2" in complaint("own")
