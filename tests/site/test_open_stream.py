"""A stream that programs fill, looked at while they do."""

from __future__ import annotations

import threading

from anabranch.plan.catalog import StreamDef
from anabranch.plan.spec import Column
from anabranch.site.sources.open_stream import OpenStream
from tests.link.support import an_outlet


def test_a_report_does_not_wait_for_a_push():
    """Reports are made inside the runtime, which a push, holding its lock, waits for."""
    definition = StreamDef(name="S", columns=(Column(name="n", type="BIGINT"),), site="here")
    stream = OpenStream(definition, an_outlet(), heartbeat_s=60)
    told: list[dict[str, object]] = []
    with stream._lock:
        asking = threading.Thread(target=lambda: told.append(stream.report()), daemon=True)
        asking.start()
        asking.join(timeout=10)
        assert told
    stream.close()
