"""With a tenth of the pairs measured, placements cost at most twice as much over what follows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from anabranch.placement.methods import placer
from anabranch.placement.network import NetworkSamples
from anabranch.site.heartbeat import LANDMARKS, NEIGHBOURS, landmarks
from bench.placement.matrices import generated
from bench.placement.queries import query


def test_landmarks_and_neighbours_are_enough() -> None:
    rng = np.random.default_rng(8)
    names = tuple(f"s{i}" for i in range(120))
    ratios = []
    for _ in range(8):
        latency = generated(rng, len(names), 40)
        measured = np.zeros(latency.shape[1:], dtype=bool)
        measured[:, [names.index(one) for one in landmarks(names)]] = True
        for row, near in zip(measured, latency[:20].mean(axis=0), strict=True):
            some = rng.choice(len(names), 60, replace=False)
            row[some[near[some].argsort()[: NEIGHBOURS + 1]]] = True
        assert measured.mean() <= (LANDMARKS + NEIGHBOURS + 2) / len(names)
        drawn = query(rng, NetworkSamples(names, latency), 20)
        past, later = drawn.part(slice(0, 20)), drawn.part(slice(20, 40))
        seen = NetworkSamples(names, np.where(measured, latency[:20], np.nan))
        few = placer("best").place(replace(past, network=seen))
        every = placer("best").place(past)
        costs = [later.cost(drawn.indexes(one.sites)) for one in (few, every)]
        ratios.append(costs[0] / costs[1])
    assert np.median(ratios) <= 2.0
