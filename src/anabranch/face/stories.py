"""Events in order, put into stories.

Pure. A failure is one story (died, noticed, taken over, recovered, protected again); every event
about the same site while it is open belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from anabranch.face.events import Difference, Kind
from anabranch.face.model import View

_DEATHS = ("site_down", "noticed", "taken_over", "kill")
_SETTLED = ("protected", "dropped", "done", "failed")
"""After any of these, nothing is left to tell of a query that was taken over."""
_AGAIN_AND_AGAIN = ("checkpoint", "shed")
"""Of these, only the newest of each query is kept."""


class Event(View):
    """`story` is the number of the event that its story began with."""

    number: int
    at: float
    kind: Kind
    text: str
    query: str = ""
    site: str = ""
    story: int = 0
    took_s: float | None = None
    """Since the story began."""


class Story(View):
    title: str
    began: float
    ended: float
    open: bool
    events: tuple[Event, ...]


class Chronicle:
    """Numbers events and puts them into stories.

    A story is about one site and begins with the first that is heard of its death: a standby often
    notices before the heartbeats have failed to come. Nothing more belongs to it once the site is
    up again and every query that was taken over from it is protected again.
    """

    def __init__(self, most: int = 2000) -> None:
        self._most = most
        self.events: list[Event] = []
        self._next = 1
        self._stories: dict[str, Event] = {}
        self._exposed: dict[str, str] = {}
        """Query → the site whose death cost it its protection, or results that are estimated."""
        self._back: set[str] = set()

    def add(self, at: float, differences: Iterable[Difference]) -> list[Event]:
        new = [self._event(at, one) for one in differences]
        again = {(one.kind, one.query) for one in new if one.kind in _AGAIN_AND_AGAIN}
        kept = [one for one in self.events if (one.kind, one.query) not in again]
        self.events = [*kept, *new][-self._most :]
        return new

    def _event(self, at: float, difference: Difference) -> Event:
        begun = self._stories.get(self._about(difference))
        number, self._next = self._next, self._next + 1
        at = difference.at or at
        story, took = (begun.number, max(0.0, at - begun.at)) if begun else (number, None)
        event = Event(
            number=number, at=at, story=story, took_s=took, **difference.model_dump(exclude={"at"})
        )
        if difference.kind in _DEATHS and difference.site:
            self._stories.setdefault(difference.site, event)
            self._back.discard(difference.site)
        if difference.kind in ("taken_over", "estimate") and difference.site:
            self._exposed[difference.query] = difference.site
        self._close(difference)
        return event

    def _about(self, difference: Difference) -> str:
        """The site whose story this event belongs to, if there is one."""
        if difference.site and difference.kind in (*_DEATHS, "site_up", "estimate", "recovered"):
            return difference.site
        return self._exposed.get(difference.query, "")

    def _close(self, difference: Difference) -> None:
        if difference.kind in _SETTLED or (difference.kind == "recovered" and not difference.site):
            self._exposed.pop(difference.query, None)
        if difference.kind == "site_up":
            self._back.add(difference.site)
        for site in self._back - set(self._exposed.values()):
            self._stories.pop(site, None)
        self._back &= self._stories.keys()


def stories(events: Sequence[Event]) -> list[Story]:
    """The stories, newest first. The events of each are in the order of their times."""
    grouped: dict[int, list[Event]] = {}
    for event in events:
        grouped.setdefault(event.story, []).append(event)
    told_ = [_story(members) for members in grouped.values()]
    return sorted(told_, key=lambda one: one.began, reverse=True)


def _story(members: list[Event]) -> Story:
    """The story of these events. A story of a site is named after the first sign of its death."""
    title = members[0].text
    ordered = sorted(members, key=lambda one: one.at)
    began = ordered[0].at
    timed = tuple(one.model_copy(update={"took_s": one.at - began}) for one in ordered)
    return Story(
        title=title, began=began, ended=ordered[-1].at, open=_is_open(members), events=timed
    )


def _is_open(members: Sequence[Event]) -> bool:
    """Whether the story goes on: a site has died, and some query that was taken over from it is not
    protected again; or none was taken over, and the site is neither up again nor are its results
    estimated.
    """
    taken = {one.query for one in members if one.kind == "taken_over"}
    settled = {one.query for one in members if one.kind in _SETTLED}
    if taken:
        return bool(taken - settled)
    over = any(one.kind in ("site_up", "recovered") for one in members)
    return any(one.kind in _DEATHS for one in members) and not over


_STEPS = (
    ("noticed", "noticed"),
    ("taken_over", "taken over"),
    ("estimate", "estimated"),
    ("recovered", "recovered"),
    ("protected", "protected again"),
    ("site_up", "back"),
)


def summary(story: Story) -> str:
    """How long each step took; of several queries the last one counts. Says `not over yet` where it
    is not.
    """
    parts = []
    for kind, what in _STEPS:
        times = [one.at - story.began for one in story.events if one.kind == kind]
        if times and (max(times) > 0 or kind != "noticed"):
            parts.append(f"{what} after {max(times):.1f} s")
    return ", ".join([*parts, *(["not over yet"] if story.open else [])]) or "over"
