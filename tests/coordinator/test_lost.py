"""Which of what is lost can only go on together."""

from __future__ import annotations

from anabranch.coordinator.deploy.wanted import by_sites, in_parts, only
from tests.plan.samples import a_query, a_stream

KNOWN = {
    one.name: one
    for one in (
        a_stream("door", "room1"),
        a_stream("fire", "room2"),
        a_query("open", "door", site="centre"),
        a_query("hot", "fire", site="centre"),
        a_query("hotter", "hot", site="desk"),
    )
}


def test_what_reads_a_lost_stream_goes_on_with_it() -> None:
    lost = {"room2": {"fire"}, "centre": {"hot", "open"}, "desk": {"hotter"}}
    fire = {"room2": {"fire"}, "centre": {"hot"}, "desk": {"hotter"}}
    assert sorted(map(str, in_parts(lost, KNOWN))) == sorted(map(str, [fire, {"centre": {"open"}}]))


def test_a_stream_that_is_there_joins_nothing() -> None:
    """`hot` runs: its source and its reader go on with it each by themselves."""
    lost = {"room2": {"fire"}, "desk": {"hotter"}}
    assert sorted(map(str, in_parts(lost, KNOWN))) == [
        "{'desk': {'hotter'}}",
        "{'room2': {'fire'}}",
    ]


def test_parts_at_the_same_sites_are_put_back_at_once() -> None:
    parts = [{"a": {"x"}}, {"a": {"y"}}, {"a": {"z"}, "b": {"w"}}]
    assert by_sites(parts) == [{"a": {"x", "y"}}, {"a": {"z"}, "b": {"w"}}]


def test_only_some_of_what_is_lost() -> None:
    assert only({"a": {"x", "y"}, "b": {"z"}}, {"x", "w"}) == {"a": {"x"}}
