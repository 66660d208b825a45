"""progress.py: how far a run is: a line on a terminal, a bar in a notebook, nothing elsewhere."""

from __future__ import annotations

import html
import math
import sys
import time
from typing import Any

from .events import End, Evaluation, Event, Phase, Saved, Step

_INTERVAL = 0.1


def _seconds(s: float) -> str:
    whole = int(s + 0.5)
    hours, rest = divmod(whole, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _rate(value: float) -> str:
    return f"{value / 1000:.1f}k" if value >= 10000 else f"{value:.0f}"


class Progress:
    """Told every event; draws at most ten times a second."""

    def __init__(self) -> None:
        self._drawn = 0.0
        self._begun = time.monotonic()
        self._first: int | None = None

    def tell(self, event: Event) -> None:
        if isinstance(event, Step):
            if self._first is None:
                self._first, self._begun = event.step, time.monotonic()
            now = time.monotonic()
            if now - self._drawn >= _INTERVAL or event.step == event.steps:
                self._drawn = now
                self.draw(self.line(event), event.step / max(event.steps, 1))
        elif isinstance(event, Phase):
            if event.over or event.seconds < 1:
                return
            share = f" {100 * event.done / event.total:.0f}%" if event.total else ""
            self.draw(f"{event.phase}{share}", event.done / event.total if event.total else 0.0)
        elif isinstance(event, Evaluation):
            metrics = "  ".join(f"{k} {v:.4f}" for k, v in event.metrics.items() if k != "loss" and not math.isnan(v))
            self.keep(f"step {event.step}  validation loss {event.loss:.4f}  {metrics}".rstrip())
        elif isinstance(event, Saved):
            self.keep(f"step {event.step}  saved {event.path}")
        elif isinstance(event, End):
            self.close()

    def line(self, s: Step) -> str:
        parts = [f"step {s.step}/{s.steps}", f"loss {s.loss:.4f}", f"lr {s.lr:.3g}"]
        if not math.isnan(s.tokens_per_second):
            parts.append(f"{_rate(s.tokens_per_second)} tokens/s")
        done = s.step - (self._first or 0)
        if done > 0 and s.steps > s.step:
            left = (time.monotonic() - self._begun) / done * (s.steps - s.step)
            parts.append(f"{_seconds(left)} left")
        return "  ".join(parts)

    def draw(self, text: str, share: float) -> None:
        """Replaces what was drawn."""

    def keep(self, text: str) -> None:
        """A line that stays."""

    def close(self) -> None:
        """Nothing more is drawn."""


class _Terminal(Progress):
    def __init__(self) -> None:
        super().__init__()
        self._width = 0

    def draw(self, text: str, share: float) -> None:
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)

    def keep(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._width) + "\n")
        sys.stderr.flush()
        self._width = 0

    def close(self) -> None:
        if self._width:
            sys.stderr.write("\n")
            sys.stderr.flush()
            self._width = 0


class _Notebook(Progress):
    """One output of the cell, which is replaced: kept lines, a bar, and the newest line."""

    def __init__(self, display: Any) -> None:
        super().__init__()
        self._display = display
        self._handle: Any = None
        self._kept: list[str] = []
        self._newest = ("", 0.0)

    def _show(self) -> None:
        text, share = self._newest
        lines = "<br>".join(html.escape(k) for k in self._kept[-20:])
        page = _Html(
            f"<div style='font-family:monospace'>{lines}{'<br>' if lines else ''}"
            f"<progress value='{share:.4f}' max='1' style='width:20em'></progress> {html.escape(text)}</div>"
        )
        if self._handle is None:
            self._handle = self._display(page, display_id=True)
        else:
            self._handle.update(page)

    def draw(self, text: str, share: float) -> None:
        self._newest = (text, share)
        self._show()

    def keep(self, text: str) -> None:
        self._kept.append(text)
        self._show()


class _Html:
    def __init__(self, text: str) -> None:
        self._text = text

    def _repr_html_(self) -> str:
        return self._text


def _notebook_display() -> Any:
    """IPython's display function inside a notebook; None elsewhere. Never imports IPython itself."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return None
    shell = ipython.get_ipython()
    if shell is None or type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from importlib import import_module

    return import_module("IPython.display").display


def make_progress(wanted: bool | None) -> Progress | None:
    """None: where there is a notebook or a terminal. True: always, as lines where there is neither."""
    if wanted is False:
        return None
    display = _notebook_display()
    if display is not None:
        return _Notebook(display)
    return _Terminal() if wanted or sys.stderr.isatty() else None
