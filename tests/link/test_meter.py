from anabranch.link.meter import Flow, Meter, Releases


def test_what_a_steady_load_is_measured_as() -> None:
    """100 tuples of 8 bytes every 100 ms; acks every 250 ms that leave 40 and 60 by turns."""
    meter = Meter()
    for tick in range(60):
        meter.appended(tick * 0.1, 100, 800)
        if tick % 5 == 0:
            meter.released(tick * 0.1, "c", 40, 100 * tick)
            meter.released(tick * 0.1 + 0.25, "c", 60, 100 * tick + 250)
    found = meter.report(5.95, "c")
    acks = ((250, 60), (250, 40)) * 3 + ((250, 60),)
    releases = Releases(ack_interval_s=0.25, left=50.0, left_spread=17.0, acks=acks)
    assert found == Flow(rate=1000.0, tuple_bytes=8.0, chunk=100.0, releases=releases)


def test_it_says_nothing_while_it_knows_too_little() -> None:
    meter = Meter()
    assert meter.report(0.0, "c") is None
    meter.appended(0.0, 5, 40)
    meter.released(0.1, "c", 1, 5)
    assert meter.report(0.2, "c") == Flow(rate=2.5, tuple_bytes=8.0, chunk=5.0)
    assert meter.report(9.0, "c") is None


def test_releases_of_long_windows_are_minutes_apart() -> None:
    """Ten tuples a second, and a window of ten minutes that lets go of what it holds."""
    meter = Meter()
    for second in range(1_900):
        meter.appended(float(second), 10, 80)
        if second and second % 600 == 0:
            meter.released(float(second), "c", 5, 10 * second)
    found = meter.report(1_900.0, "c")
    assert found
    assert found.releases
    assert found.releases.ack_interval_s == 600.0
    assert found.releases.acks == ((6_000, 5), (6_000, 5))


def test_acks_of_a_busy_task_may_be_seconds_apart() -> None:
    """Each second 1000 tuples come and are read; every third second they are released."""
    meter = Meter()
    for second in range(31):
        meter.appended(float(second), 1000, 8000)
        if second % 3 == 0:
            meter.released(second + 0.5, "c", 2000, 1000 * second)
    found = meter.report(31.0, "c")
    assert found
    assert found.releases
    assert found.rate == 1000.0
    assert found.releases.ack_interval_s == 3.0
    assert found.releases.acks == ((3000, 2000),) * 3
    meter.appended(90.0, 1000, 8000)
    later = meter.report(90.5, "c")
    assert later
    assert later.releases is None
