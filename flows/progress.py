"""What a person sees while stages run: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from pipeline import cluster

PATIENCE_SECONDS = 2.0  # a stage that ends sooner shows nothing
LINE_SECONDS = 10.0  # between plain lines


class Rate(ProgressColumn):
    """Units a second of late."""

    def render(self, task: Task) -> Text:
        """`12.3/s`."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.1f}/s" if speed else "", style="dim")


@contextmanager
def watched(name: str, unit: str = "shards") -> Iterator[cluster.Progress]:
    """
    A stage's progress, to be called with (done, of how many); a stage that cannot tell need not call it.

    Nothing is shown of a stage that takes less than `PATIENCE_SECONDS`.
    """
    console = Console(stderr=True)
    shown: Bar | Lines = Bar(name, unit, console) if console.is_terminal else Lines(name, unit)
    stop = threading.Event()
    thread = threading.Thread(target=_show, args=(shown, stop), daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        stop.set()
        thread.join()
        shown.close()


def _show(shown: "Bar | Lines", stop: threading.Event) -> None:
    wait = PATIENCE_SECONDS
    while not stop.wait(wait):
        shown.show()
        wait = LINE_SECONDS


class Bar:
    """A bar with rate and remaining time; it runs to and fro until the first call says how much there is to do."""

    def __init__(self, name: str, unit: str, console: Console) -> None:
        columns = (
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            Rate(),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=console, transient=True)
        self.task = self.bar.add_task(name, total=None)

    def __call__(self, done: int, total: int) -> None:
        self.bar.update(self.task, completed=done, total=total)

    def show(self) -> None:
        """Put it on the screen."""
        self.bar.start()

    def close(self) -> None:
        """Take it away."""
        self.bar.stop()


class Lines:
    """Plain lines with rate and remaining time; the rate counts from the first call: a run may go on from its half."""

    def __init__(self, name: str, unit: str) -> None:
        self.name, self.unit = name, unit
        self.begun = time.monotonic()
        self.first: tuple[float, int] | None = None
        self.last: tuple[float, int, int] | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        self.first = self.first or (now, done)
        self.last = now, done, total

    def show(self) -> None:
        """Print how far it is."""
        print(f"{self.name}: {self.text()}", file=sys.stderr, flush=True)

    def text(self) -> str:
        """`120 of 2,230 steps, 45.2/s, 47 s left`, as far as it is known."""
        if self.first is None or self.last is None:
            return f"{time.monotonic() - self.begun:.0f} s so far"
        (since, before), (now, done, total) = self.first, self.last
        speed = (done - before) / (now - since) if now > since else 0.0
        pace = f", {speed:,.1f}/s, {(total - done) / speed:,.0f} s left" if speed else ""
        return f"{done:,} of {total:,} {self.unit}{pace}"

    def close(self) -> None:
        """Nothing to take away."""
