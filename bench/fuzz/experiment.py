"""Malformed texts, many of them: whatever is wrong with one is said in one line, soon, without much
memory, and without a change to any file.

All but Spark is real: scripts are parsed, bound, checked and explained, their sources and sinks are
looked at, and sinks of scripts that pass are opened; files are read to their end.
"""

from __future__ import annotations

import functools
import hashlib
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from anabranch.config.cluster import ClusterConfig, parse_cluster
from anabranch.connectors import SourceContext, make_source
from anabranch.coordinator.base.catalog import IN_MEMORY, Catalog
from anabranch.coordinator.placement.placing import Placing
from anabranch.coordinator.scripts.scripts import ScriptCheck
from anabranch.errors import AnabranchError
from anabranch.language.expressions.types import SketchTypes
from anabranch.language.source import Script
from anabranch.plan.catalog import AnyDef
from bench.fuzz.site import FuzzSites, open_sinks
from bench.fuzz.texts import CLUSTERS, CSVS, JSONS, SCRIPTS, mutated

LONGEST_S = 5.0
"""Of processor time: how busy the machine is does not matter."""
LONGEST_WAIT_S = 60.0
"""Until what takes no processor time either is taken for one that hangs."""
MOST_GROWTH_MB = 200.0
_LONGEST_LINE = 2_000
_WARM = 300
"""Texts after which what is imported and cached is there, and memory is looked at."""
_FUNCTIONS = ("abs", "array", "avg", "count", "mod", "transform", "upper")
_COLUMNS = pa.schema([("id", pa.int64()), ("room", pa.string()), ("celsius", pa.float64())])


@dataclass
class Outcome:
    """Of the texts with the seeds `first` to `first + count - 1`."""

    first: int
    count: int
    refused: Counter[str] = field(default_factory=Counter)
    taken: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    growth_mb: float = 0.0


class Hung(BaseException):
    """Not an Exception: nobody who handles those is to swallow it."""


def fuzz(first: int, count: int) -> Outcome:
    """In the main thread of a process of its own, as it sets alarms."""
    outcome = Outcome(first, count)
    folder = Path(tempfile.mkdtemp(prefix="anabranch-fuzz-"))
    try:
        before = 0
        for number, seed in enumerate(range(first, first + count)):
            if number == min(_WARM, count // 2):
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            _one(seed, folder, outcome)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        outcome.growth_mb = (after - before) / (2**20 if sys.platform == "darwin" else 2**10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _one(seed: int, folder: Path, outcome: Outcome) -> None:
    chance = Random(seed)
    kind = chance.choice(list(_KINDS))
    texts, try_out = _KINDS[kind]
    text = mutated(chance, texts)
    files = _fresh(folder)
    started = time.process_time()
    try:
        with _alarm():
            try_out(text, folder, chance)
        outcome.taken[kind] += 1
    except AnabranchError as error:
        outcome.refused[kind] += 1
        line = error.line()
        if "\n" in line or not error.message or len(line) > _LONGEST_LINE:
            outcome.problems.append(f"seed {seed}: {kind}: no line: {line[:200]!r}")
    except Hung:
        outcome.problems.append(f"seed {seed}: {kind}: took longer than {LONGEST_S:.0f} s")
    except Exception as error:
        where = _where(error)
        outcome.problems.append(f"seed {seed}: {kind}: {type(error).__name__}: {error} ({where})")
    outcome.slowest_s = max(outcome.slowest_s, time.process_time() - started)
    changed = [path.name for path, digest in files.items() if _digest(path) != digest]
    if changed:
        outcome.problems.append(f"seed {seed}: {kind}: changed {', '.join(changed)}")


def _where(error: Exception) -> str:
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"


@contextmanager
def _alarm() -> Iterator[None]:
    def hung(*args: Any) -> None:
        raise Hung

    limits = {signal.ITIMER_PROF: LONGEST_S, signal.ITIMER_REAL: LONGEST_WAIT_S}
    signal.signal(signal.SIGPROF, hung)
    signal.signal(signal.SIGALRM, hung)
    try:
        for timer, seconds in limits.items():
            signal.setitimer(timer, seconds)
        yield
    finally:
        for timer in limits:
            signal.setitimer(timer, 0)


_USERS = {
    "mine.csv": CSVS[0],
    "mine.jsonl": JSONS[0],
    "rooms.csv": "id,name\n1,hall\n",
    "notes.txt": "precious\n",
}


def _fresh(folder: Path) -> dict[Path, str]:
    """A user's files, and what they hold."""
    for other in folder.iterdir():
        if other.name not in _USERS:
            shutil.rmtree(other) if other.is_dir() else other.unlink()
    for name, text in _USERS.items():
        if not (folder / name).exists():
            (folder / name).write_text(text, encoding="utf-8")
    return {folder / name: _digest(folder / name) for name in _USERS}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "gone"


def _script(text: str, folder: Path, chance: Random) -> None:
    known = {} if chance.random() < 0.3 else _known(folder)
    open_sinks(_checked(text, folder, known), folder)


def _checked(text: str, folder: Path, known: dict[str, AnyDef]) -> list[AnyDef]:
    """What the script would create."""
    sites: Any = FuzzSites(folder)
    cluster = ClusterConfig.of_sites(sites.names())
    placing = Placing(sites, Catalog(IN_MEMORY), cluster)
    types = SketchTypes(_FUNCTIONS)
    script = Script(text)
    check = ScriptCheck(script, known, sites, str(folder), list, placing, types=types)
    return check.run().add


@functools.cache
def _known(folder: Path) -> dict[str, AnyDef]:
    """What queries read, so that they are looked at to their end."""
    return {one.name: one for one in _checked("".join(SCRIPTS[:4]), folder, {})}


def _read(suffix: str) -> Callable[[str, Path, Random], None]:
    def read(text: str, folder: Path, chance: Random) -> None:
        data = text.encode(errors="surrogatepass")
        if chance.random() < 0.2:  # what is no UTF-8
            at = chance.randint(0, len(data))
            data = data[:at] + bytes(chance.choices(range(256), k=5)) + data[at:]
        (folder / f"fuzz{suffix}").write_bytes(data)
        options = {
            "path": f"fuzz{suffix}",
            "on_error": chance.choice(("fail", "skip")),
            "max_line": chance.choice((1000, 16_000_000)),
        }
        timestamp = chance.choice(("ts", None))
        context = SourceContext("S", _COLUMNS, timestamp, options, folder, spark=_no_spark)
        for table in make_source("file", context).read():
            table.validate(full=True)

    return read


def _no_spark() -> Any:
    raise TypeError("files are read without Spark")


def _cluster(text: str, folder: Path, chance: Random) -> None:
    parse_cluster(text)


Try = Callable[[str, Path, Random], None]
_KINDS: dict[str, tuple[tuple[str, ...], Try]] = {
    "script": (SCRIPTS, _script),
    "CSV": (CSVS, _read(".csv")),
    "JSON lines": (JSONS, _read(".jsonl")),
    "cluster file": (CLUSTERS, _cluster),
}
