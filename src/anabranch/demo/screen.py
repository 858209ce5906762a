"""The demonstration on a terminal; always of the same height, so that nothing jumps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from anabranch.demo.apartment import ALARM_ABOVE, ROOMS
from anabranch.demo.record import Alarm, Failure, Record, verdict

WIDTH = 78
CURVE = 36
"""Characters of a temperature curve."""
ALARMS_SHOWN = 8
_BARS = "▁▂▃▄▅▆▇█"
_COLD, _HOT = 15.0, 120.0


@dataclass(frozen=True)
class ScreenMoment:
    """`readings` and `rates` (a second) are the sensors', by room."""

    elapsed_s: float
    seconds: float
    readings: dict[str, int]
    rates: dict[str, float]


def bar(celsius: float) -> str:
    """One character; the hotter, the higher."""
    share = (celsius - _COLD) / (_HOT - _COLD)
    return _BARS[min(max(int(share * len(_BARS)), 0), len(_BARS) - 1)]


def colour(celsius: float) -> str:
    if celsius > ALARM_ABOVE:
        return "bold red"
    return "yellow" if celsius > ALARM_ABOVE * 0.6 else "green"


def curve(celsius: Sequence[float], width: int = CURVE) -> Text:
    """The newest `width` temperatures, oldest first."""
    text = Text()
    for value in celsius[-width:]:
        text.append(bar(value), colour(value))
    return text


def screen(record: Record, moment: ScreenMoment, failure: Failure) -> RenderableType:
    """The whole screen, at most 80 columns wide and 24 lines high."""
    story = Text(failure.line(), "dim" if failure.killed is None else "bold")
    return Group(_title(moment), _rooms(record, moment), _centre(record, failure.primary), story)


def _title(moment: ScreenMoment) -> RenderableType:
    grid = Table.grid(expand=False)
    grid.add_column(width=WIDTH - 16)
    grid.add_column(width=16, justify="right")
    clock = f"{min(moment.elapsed_s, moment.seconds):.0f} s of {moment.seconds:g} s"
    grid.add_row(Text("An apartment: three rooms and a security centre", "bold"), clock)
    return grid


def _rooms(record: Record, moment: ScreenMoment) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("site", style="bold")
    table.add_column("now", justify="right", width=9)
    table.add_column("temperature", width=CURVE)
    table.add_column("readings", justify="right", width=8)
    table.add_column("a second", justify="right", width=8)
    for room in ROOMS:
        table.add_row(room, *_room(record.celsius[room], room, moment))
    return Panel(table, title="rooms", title_align="left", width=WIDTH, box=box.ROUNDED)


def _room(celsius: list[float], room: str, moment: ScreenMoment) -> tuple[str | Text, ...]:
    newest = Text(f"{celsius[-1]:.1f} °C", colour(celsius[-1])) if celsius else Text("–", "dim")
    readings, rate = moment.readings.get(room, 0), moment.rates.get(room, 0.0)
    return newest, curve(celsius), f"{readings:,}", f"{rate:,.0f}"


def _centre(record: Record, primary: str) -> RenderableType:
    newest = record.alarms[-ALARMS_SHOWN:]
    lines = [alarm_line(alarm) for alarm in reversed(newest)]
    if not lines:
        lines = [Text("no alarm", "dim")]
    blank = [Text("")] * (ALARMS_SHOWN - len(lines))
    return Panel(
        Group(*lines, *blank),
        title=primary,
        title_align="left",
        subtitle=_counts(record),
        subtitle_align="right",
        width=WIDTH,
        box=box.ROUNDED,
        border_style="red" if newest else "none",
    )


def alarm_line(alarm: Alarm) -> Text:
    clock = time.strftime("%H:%M:%S", time.localtime(alarm.time))
    line = Text(f"{clock}  ", "dim")
    line.append("ALARM", "bold red")
    line.append(f"  {alarm.room}  {alarm.celsius:6.1f} °C  ")
    line.append(f"{alarm.latency_ms:5.0f} ms after the reading", "dim")
    return line


def _counts(record: Record) -> str:
    if not record.alarms:
        return "0 alarms"
    latency = f"{record.latency_ms(0.5):.0f} ms at the median"
    return f"{len(record.alarms)} alarms · {latency}"


def plain_line(record: Record, moment: ScreenMoment, failure: Failure) -> str:
    """The same on one line, where there is no terminal."""
    rooms = [
        f"{room} {record.celsius[room][-1]:.1f} °C" if record.celsius[room] else f"{room} –"
        for room in ROOMS
    ]
    line = f"{moment.elapsed_s:4.0f} s   {'   '.join(rooms)}   {_counts(record)}"
    return line if failure.killed is None else f"{line}   {failure.line()}"


def summary(record: Record, moment: ScreenMoment, failure: Failure) -> RenderableType:
    """The numbers of the whole run, per room."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("site", "readings", "sent to the centre", "alarms there", "hottest"):
        table.add_column(name, justify="left" if name == "site" else "right")
    alarms = record.alarms_per_room()
    for room in ROOMS:
        hottest = f"{max(record.celsius[room], default=0.0):.1f} °C"
        counts = (moment.readings.get(room, 0), len(record.celsius[room]), alarms[room])
        table.add_row(room, *(f"{count:,}" for count in counts), hottest)
    return Group(table, "", _latency_line(record), *_verdict_lines(record, failure))


def _verdict_lines(record: Record, failure: Failure) -> list[Text]:
    """What happened to the alarms though their centre was killed."""
    outcome = verdict(record)
    pause = failure.without_alarms_s(record.alarms)
    gap = f", {pause:.1f} s without alarms" if pause is not None else ""
    lines = [Text(f"{outcome}{gap}.", "bold green" if outcome.right else "bold red")]
    if failure.killed is not None:
        lines.insert(0, Text(f"{failure.line()}."))
    return lines


def _latency_line(record: Record) -> str:
    if not record.alarms:
        return "No alarm was raised."
    p50, p99 = record.latency_ms(0.5), record.latency_ms(0.99)
    return f"From reading to alarm file it took {p50:.0f} ms (median) and {p99:.0f} ms (99 %)."
