"""Data of the approx experiment: the paper's synthetic keys, and files with a column a key."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from anabranch.approx.gaussian import Floats
from anabranch.errors import ConfigError

BLOCKS, BLOCK, INSIDE = 10, 12, 0.9
SERIES = 1000


def synthetic_covariance() -> Floats:
    """120 keys of variance 1, in ten blocks with covariance 0.9 inside and 0 outside."""
    block = np.full((BLOCK, BLOCK), INSIDE)
    np.fill_diagonal(block, 1.0)
    return np.kron(np.eye(BLOCKS), block)


def synthetic(seed: int) -> Floats:
    keys = BLOCKS * BLOCK
    draw = np.random.default_rng(seed)
    return draw.multivariate_normal(
        np.zeros(keys), synthetic_covariance(), SERIES, method="cholesky"
    )


REGIMES = (
    "stable",
    "shift",
    "decorrelated",
    "other causes",
    "noise",
    "noise now and then",
    "glitches",
)
"""What happens to a sixth of the keys in the last third of the time."""


def regime(kind: str, seed: int, windows: int = 720, keys: int = 48) -> Floats:
    """Keys that follow four slow causes, with noise of their own that persists, and a change that
    no history tells of."""
    draw = np.random.default_rng(seed)
    causes = _persistent(draw, windows, np.full(4, 0.2), 0.98)
    shares = draw.normal(1, 0.4, size=(4, keys))
    own = _persistent(draw, windows, draw.uniform(0.05, 0.2, keys), 0.7)
    change = int(windows * draw.uniform(0.62, 0.85))
    some = draw.choice(keys, keys // 6, replace=False)
    values = causes @ shares + own
    late = np.arange(windows) >= change
    if kind == "shift":
        values[np.ix_(late, some)] += draw.choice([-1.0, 1.0], len(some))
    elif kind == "decorrelated":
        values[np.ix_(late, some)] = _persistent(draw, windows, np.full(len(some), 0.3), 0.98)[late]
    elif kind == "other causes":
        others = draw.normal(1, 0.6, size=(4, len(some)))
        part = np.clip((np.arange(windows) - change) / 60, 0, 1)[:, None]
        values[:, some] += part * (causes @ (others - shares[:, some]))
    elif kind in ("noise", "noise now and then"):
        rows = late & ((np.arange(windows) // 50 % 2 == 1) | (kind == "noise"))
        values[np.ix_(rows, some)] += 0.35 * draw.normal(size=(rows.sum(), len(some)))
    elif kind == "glitches":
        for _ in range(windows // 4):
            values[draw.integers(windows), draw.integers(keys)] += draw.choice([-30.0, 30.0])
    return values


def _persistent(draw: np.random.Generator, windows: int, sizes: Floats, memory: float) -> Floats:
    values = np.zeros((windows, len(sizes)))
    for now in range(1, windows):
        values[now] = memory * values[now - 1] + sizes * draw.normal(size=len(sizes))
    return values


def files_in(path: Path) -> list[Path]:
    """`path` itself, or the tables of readings in this folder and in those below it."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError("there is no such file or folder", place=str(path))
    found = sorted(path.rglob("temperature.txt")) + sorted(path.rglob("*.csv"))
    if not found:
        raise ConfigError(
            "no readings here", place=str(path), remedy="Give a CSV with one column a key."
        )
    return found


def name_of(file: Path) -> str:
    """As the experiment calls it: the folder of a file with a common name, else the file."""
    return file.parent.name if file.stem == "temperature" else file.stem


def read(file: Path) -> Floats:
    """Rows over time, a column a key, separated by commas or blanks; NaN where there is no number.
    A first line of names is left out, and so are columns without any number, and the time: a first
    column in which every number is greater than the one before."""
    lines = [line for line in file.read_text().splitlines() if line.strip()]
    rows = [line.split(",") if "," in lines[0] else line.split() for line in lines]
    width = len(rows[0])
    for number, row in enumerate(rows, 1):
        if len(row) != width:
            raise ConfigError(f"{len(row)} columns instead of {width}", place=f"{file}:{number}")
    values = np.array([[_number(text) for text in row] for row in rows])
    if np.isnan(values[0]).all():
        values = values[1:]
    values = values[:, ~np.isnan(values).all(axis=0)]
    if values.shape[1] and len(values) > 2 and (np.diff(values[:, 0]) > 0).all():
        values = values[:, 1:]
    if values.shape[1] < 2:
        raise ConfigError("fewer than two columns of numbers", place=str(file))
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan


def means(readings: Floats, width: int, slide: int) -> Floats:
    """The mean of each key in each window, all in rows; NaN if it has no reading there."""
    known = np.where(np.isnan(readings), 0.0, readings).cumsum(axis=0)
    count = (~np.isnan(readings)).cumsum(axis=0)
    ends = np.arange(width - 1, len(readings), slide)
    before = ends - width
    start = (before >= 0)[:, None]
    total = known[ends] - np.where(start, known[before], 0)
    number = count[ends] - np.where(start, count[before], 0)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)
