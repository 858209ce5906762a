"""Loads as the standby's paper measured with, and random ones."""

from __future__ import annotations

import math
import random
from typing import Any

from hypothesis import strategies as st

from anabranch.standby.cost import Load


def paper(**changes: Any) -> Load:
    """1000 tuples of 56 bytes a second, heartbeats and acks every 250 ms."""
    values: dict[str, Any] = {
        "rate": 1000.0,
        "ack_interval_s": 0.25,
        "lag_s": 0.1,
        "window": 0.0,
        "tuple_bytes": 56.0,
        "ratio": 1.0,
        "bandwidth": None,
        "rtt_s": 0.002,
        "heartbeat_s": 0.25,
        "fixed_s": 0.03,
        "per_tuple_s": 1e-4,
    }
    return Load(**(values | changes))


def drawn(rng: random.Random, *, chunked: bool, varying: bool) -> Load:
    interval = rng.choice([0.1, 0.25, 0.5, 1.0])
    rate = math.exp(rng.uniform(math.log(20), math.log(500)))
    lag = rng.uniform(0, 1.5 * interval)
    chunks = [5, 20, 100, max(1, int(rate * interval)), max(1, int(rate * 0.1))]
    return paper(
        rate=rate,
        ack_interval_s=interval,
        lag_s=lag,
        window=rng.choice([0, 0, 100, rng.randrange(300)]),
        chunk=rng.choice(chunks) if chunked else 1,
        lag_spread_s=rng.uniform(0, 0.5) * lag if varying else 0.0,
    )


loads = st.builds(
    paper,
    rate=st.floats(0, 5000),
    ack_interval_s=st.floats(0.05, 2),
    lag_s=st.floats(0, 2),
    window=st.integers(0, 2000),
    ratio=st.floats(0.1, 1),
    bandwidth=st.one_of(st.none(), st.floats(1e4, 1e8)),
    rtt_s=st.floats(0, 0.2),
    heartbeat_s=st.floats(0, 1),
    fixed_s=st.floats(0, 0.2),
    per_tuple_s=st.floats(0, 2e-3),
    lag_spread_s=st.floats(0, 0.5),
    chunk=st.integers(1, 500),
    missed=st.integers(1, 3),
)
