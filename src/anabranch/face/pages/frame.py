"""The parts that every view has: the bar on top, the colours, and the timer that updates it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from nicegui import ui

VIEWS = (("System", "/"), ("Timeline", "/timeline"), ("SQL", "/sql"))
GOOD, POOR, BAD = "positive", "warning", "negative"
STATES = {
    "running": GOOD,
    "up": GOOD,
    "done": "info",
    "failed": BAD,
    "lost": BAD,
    "unreachable": BAD,
    "stuck": BAD,
}


def colour_of(state: str) -> str:
    return STATES.get(state, POOR)


_CSS = """
.a-mono { font-family: ui-monospace, 'DejaVu Sans Mono', monospace; white-space: pre; }
.a-wrap { white-space: pre-wrap; overflow-wrap: anywhere; }
.a-here { border-bottom: 2px solid #fff; }
.nicegui-content { max-width: 1280px; margin: 0 auto; width: 100%; padding: 12px; }
.a-bar a { padding: 4px 2px; } .a-bar a:focus-visible { outline: 2px solid #fff; }
@media (max-width: 600px) { .a-bar { gap: 4px; } .q-table__top { padding: 4px; } }
"""


class Looks:
    """Dark or light, as the viewer's machine prefers, until the viewer chooses otherwise."""

    def __init__(self) -> None:
        self._mode = ui.dark_mode(None)
        self._changed: list[Callable[[bool], None]] = []
        self.dark = False

    def on_change(self, show: Callable[[bool], None]) -> None:
        """`show` is called with whether it is dark, as soon as that is known and whenever it
        changes.
        """
        self._changed.append(show)

    async def find_out(self) -> None:
        """Asks the viewer's machine. If the viewer has left already, no colours are needed."""
        question = "window.matchMedia('(prefers-color-scheme: dark)').matches"
        with suppress(TimeoutError):
            self._tell(bool(await ui.run_javascript(question)))

    def turn(self) -> None:
        self._mode.value = not self.dark
        self._tell(not self.dark)

    def _tell(self, dark: bool) -> None:
        self.dark = dark
        for show in self._changed:
            show(dark)


@contextmanager
def frame(title: str, address: str = "") -> Iterator[Looks]:
    """The frame of a view; `address` is the path of this view."""
    ui.page_title(f"{title} · Anabranch")
    ui.colors(primary="#0d9488")
    ui.add_css(_CSS)
    looks = Looks()
    with ui.header().classes("items-center q-py-xs a-bar no-wrap").style("background: #0f766e"):
        ui.link("Anabranch", "/").classes("text-lg text-weight-bold text-white no-underline")
        for name, path in VIEWS:
            link = ui.link(name, path).classes("text-white q-mx-sm no-underline")
            if path == address:
                link.classes("a-here").props("aria-current=page")
        ui.space()
        button = ui.button(icon="contrast", on_click=looks.turn)
        button.props("flat dense color=white aria-label='dark or light'").tooltip("dark or light")
    yield looks
    ui.timer(0.0, looks.find_out, once=True)


def asked_first(question: str, answer: str, do: Callable[[], Awaitable[None]]) -> ui.dialog:
    """A dialog that asks before it does what cannot be taken back."""
    with ui.dialog() as dialog, ui.card():
        ui.label(question).classes("text-body1")

        async def done() -> None:
            dialog.close()
            await do()

        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat")
            ui.button(answer, color="negative", on_click=done)
    return dialog


def every_second(show: Callable[[], None]) -> None:
    """Shows now, and again each second as long as somebody looks."""
    show()
    ui.timer(1.0, show)
