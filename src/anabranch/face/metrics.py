"""The system's figures in Prometheus' text format, built from a snapshot at each scrape.

`INVENTORY` is the whole list; the documentation prints it and a test holds them together.
"""

from __future__ import annotations

from anabranch.face.model import WELL, Snapshot
from anabranch.site.http.metrics import Figure, Values, exposition

INVENTORY = (
    Figure("anabranch_site_up", "1 while the site sends heartbeats", ("site",)),
    Figure("anabranch_site_load", "Seconds of computing a second, by its tasks", ("site",)),
    Figure("anabranch_stream_tuples", "Tuples that have entered", ("stream", "site"), counts=True),
    Figure("anabranch_stream_rate", "Tuples a second that enter", ("stream", "site")),
    Figure(
        "anabranch_stream_left_out",
        "Tuples left out, by reason: late, skipped, shed",
        ("stream", "site", "reason"),
        counts=True,
    ),
    Figure("anabranch_query_running", "1 while it runs or has ended well", ("query", "site")),
    Figure("anabranch_query_tuples_out", "Results so far", ("query", "site"), counts=True),
    Figure("anabranch_query_rate_in", "Tuples a second that it takes", ("query", "site")),
    Figure("anabranch_query_rate_out", "Results a second", ("query", "site")),
    Figure("anabranch_query_queue", "Tuples that wait for it", ("query", "site")),
    Figure(
        "anabranch_query_latency_seconds",
        "Age of results when they leave, by quantile",
        ("query", "site", "quantile"),
    ),
    Figure("anabranch_query_protected", "1 while a standby could take over", ("query", "site")),
    Figure("anabranch_link_rate", "Tuples a second between sites", ("sender", "receiver")),
    Figure("anabranch_link_queue", "Tuples that wait at the receiver", ("sender", "receiver")),
)


def system_exposition(now: Snapshot) -> str:
    return exposition(INVENTORY, _values(now))


def _values(now: Snapshot) -> dict[str, Values]:
    sites, streams, queries = now.sites, now.streams, now.queries
    latencies = [
        ((one.name, one.site, quantile), ms / 1e3)
        for one in queries
        for quantile, ms in (("0.5", one.p50_ms), ("0.99", one.p99_ms))
        if ms is not None
    ]
    return {
        "anabranch_site_up": [((one.name,), one.state == "up") for one in sites],
        "anabranch_site_load": [((one.name,), one.load) for one in sites],
        "anabranch_stream_tuples": [((one.name, one.site), one.rows) for one in streams],
        "anabranch_stream_rate": [((one.name, one.site), one.rate) for one in streams],
        "anabranch_stream_left_out": [
            ((one.name, one.site, why), count)
            for one in streams
            for why, count in one.left_out.items()
        ],
        "anabranch_query_running": [((one.name, one.site), one.state in WELL) for one in queries],
        "anabranch_query_tuples_out": [((one.name, one.site), one.rows_out) for one in queries],
        "anabranch_query_rate_in": [((one.name, one.site), one.rate_in) for one in queries],
        "anabranch_query_rate_out": [((one.name, one.site), one.rate_out) for one in queries],
        "anabranch_query_queue": [((one.name, one.site), one.queue) for one in queries],
        "anabranch_query_latency_seconds": latencies,
        "anabranch_query_protected": [
            ((one.name, one.site), one.protection.protected) for one in queries if one.protection
        ],
        "anabranch_link_rate": [((one.sender, one.receiver), one.rate) for one in now.links],
        "anabranch_link_queue": [((one.sender, one.receiver), one.queue) for one in now.links],
    }
