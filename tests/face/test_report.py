"""The report is one page with all there was, whatever the names of things are."""

from __future__ import annotations

from anabranch.face.events import differences
from anabranch.face.report import report_html
from anabranch.face.snapshot import snapshot
from anabranch.face.stories import Chronicle, stories
from tests.face.test_events import BACK, TAKEN, WELL


def test_all_of_a_failure_is_in_it():
    history = [snapshot(one, at) for one, at in ((WELL, 10.0), (TAKEN, 11.0), (BACK, 15.5))]
    chronicle = Chronicle()
    chronicle.add(11.0, differences(history[0], history[1]))
    chronicle.add(15.5, differences(history[1], history[2]))
    page = report_html(history, stories(chronicle.events), {"q": "selection <b>"})
    assert "selection &lt;b&gt;" in page
    assert "+0.0 s centre2 has taken q over from centre" in page
    assert "+4.5 s site centre is up" in page
    assert page.count("<polyline") == 3


def test_a_system_that_has_just_begun():
    assert "no figures yet" in report_html([snapshot(WELL, 1.0)], [], {})
