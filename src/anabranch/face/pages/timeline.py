"""What happened when: one failure reads as one story, with how long each step took."""

from __future__ import annotations

import time

from nicegui import ui

from anabranch.face.pages.frame import every_second, frame
from anabranch.face.stories import Event, Story, stories, summary
from anabranch.face.system import System

_ICONS = {
    "site_down": ("error", "negative"),
    "site_up": ("check_circle", "positive"),
    "taken_over": ("swap_horiz", "warning"),
    "moved": ("redo", "primary"),
    "failed": ("report", "negative"),
    "protected": ("shield", "positive"),
    "unprotected": ("gpp_maybe", "warning"),
    "statement": ("terminal", "grey-7"),
    "created": ("add_circle", "primary"),
    "dropped": ("remove_circle", "grey-7"),
    "done": ("flag", "info"),
    "shed": ("filter_alt", "warning"),
    "checkpoint": ("save", "grey-7"),
    "estimate": ("query_stats", "warning"),
    "kill": ("bolt", "negative"),
    "noticed": ("visibility", "warning"),
    "recovered": ("done_all", "positive"),
    "stalled": ("hourglass_empty", "negative"),
    "goes_on": ("play_circle", "positive"),
}
_MOST = 100


def add_timeline(system: System) -> None:
    @ui.page("/timeline")
    def timeline() -> None:
        with frame("Timeline", "/timeline"):
            place = ui.column().classes("w-full")
            seen = {"events": -1}

            def show() -> None:
                events = system.watch.events
                newest = events[-1].number if events else 0
                if newest == seen["events"]:
                    return
                seen["events"] = newest
                place.clear()
                with place:
                    _stories(stories(events)[:_MOST])

            every_second(show)


def _stories(stories: list[Story]) -> None:
    if not stories:
        ui.label("Nothing has happened since the system came up.").classes("text-body1")
    for story in stories:
        if len(story.events) == 1:
            _line(story.events[0])
            continue
        with ui.card().classes("w-full q-gutter-none"):
            title = f"{_clock(story.began)}  {story.title}: {summary(story)}"
            ui.label(title).classes("text-weight-medium a-wrap")
            for event in story.events:
                _line(event, since=True)


def _line(event: Event, *, since: bool = False) -> None:
    """A line with the time of day, or within a story with the time since the story began."""
    icon, colour = _ICONS[event.kind]
    when = f"+{event.took_s or 0.0:.1f} s" if since else _clock(event.at)
    width = "4.5em" if since else "14em"
    with ui.row().classes("items-center q-gutter-sm no-wrap"):
        ui.label(when).classes("a-mono text-caption text-right").style(f"min-width: {width}")
        ui.icon(icon, color=colour)
        ui.label(event.text).classes("a-wrap")


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
