"""Latency matrices over time: those of a folder, or generated ones."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from anabranch.errors import ConfigError
from anabranch.placement.network import Array

_NUMBERS = re.compile(r"(\d+)")
FEWEST = 40
"""Samples that an experiment over time needs."""


def read(folder: Path) -> Array:
    """(samples, sites, sites) of every N×N matrix in the folder and its tar archives, in the order
    of the numbers in their names; blank or comma separated. 0 off the diagonal, and what is not a
    number, is a gap."""
    if not folder.is_dir():
        raise ConfigError("there is no such folder", place=str(folder))
    named = sorted(_files(folder), key=lambda one: _natural(one[0]))
    if not named:
        raise ConfigError(
            "it has no files", place=str(folder), remedy="Put one N×N matrix into each."
        )
    found = [_matrix(text, f"{folder}/{name}") for name, text in named]
    shapes = {one.shape for one in found}
    if len(shapes) > 1:
        sizes = ", ".join(f"{n}×{n}" for n, _ in sorted(shapes))
        raise ConfigError(f"its matrices are not of one size: {sizes}", place=str(folder))
    if len(found) < FEWEST:
        raise ConfigError(
            f"it has {len(found)} matrices, and {FEWEST} are needed", place=str(folder)
        )
    return np.array(found)


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.rglob("*"):
        if path.name.endswith((".tar", ".tar.gz", ".tgz")):
            with tarfile.open(path) as archive:
                for member in archive:
                    file = archive.extractfile(member) if member.isfile() else None
                    if file:
                        yield member.name, file.read().decode()
        elif path.is_file() and path.suffix in ("", ".txt", ".csv", ".tsv"):
            yield str(path.relative_to(folder)), path.read_text()


def _natural(name: str) -> list[tuple[int, str]]:
    parts = _NUMBERS.split(name)
    return [(int(one), "") if one.isdigit() else (0, one) for one in parts]


def _matrix(text: str, place: str) -> Array:
    try:
        found = np.loadtxt(io.StringIO(text.replace(",", " ")), ndmin=2)
    except ValueError as error:
        raise ConfigError(f"this is no matrix: {error}", place=place) from None
    if found.shape[0] != found.shape[1]:
        raise ConfigError(
            f"this matrix is {found.shape[0]}×{found.shape[1]}",
            place=place,
            remedy="It must have a row and a column for each site.",
        )
    gaps = (found <= 0) & ~np.eye(len(found), dtype=bool)
    return np.where(gaps, np.nan, found)


def generated(rng: np.random.Generator, sites: int, samples: int, slow: float = 0.02) -> Array:
    """Sites in a plane, in a few regions; every pair jitters, and with that chance a sample a site
    is `slow` for a while."""
    regions = rng.uniform(0, 0.15, (max(2, sites // 20), 2))
    where = regions[rng.integers(0, len(regions), sites)] + rng.normal(0, 0.01, (sites, 2))
    far = np.linalg.norm(where[:, None] - where[None, :], axis=2) + 0.002
    slowness = np.ones(sites)
    found = np.empty((samples, sites, sites))
    for sample in found:
        slowness[rng.random(sites) < 0.1] = 1.0
        struck = rng.random(sites) < slow
        slowness[struck] = rng.uniform(3, 20, struck.sum())
        jitter = rng.gamma(50, 0.02, far.shape)
        sample[:] = far * jitter * np.maximum(slowness[:, None], slowness[None, :])
    return found
