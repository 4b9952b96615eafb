"""What a person sees while stages run: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from pipeline import cluster

PATIENCE_SECONDS = 2.0  # a stage that ends sooner shows no bar
LINE_SECONDS = 10.0  # between plain lines

console = Console(stderr=True)


class Rate(ProgressColumn):
    """Units a second since the stage began."""

    def render(self, task: Task) -> Text:
        """`12.3/s`."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.1f}/s" if speed else "", style="dim")


@contextmanager
def watched(name: str, unit: str = "shards", quiet: bool = False) -> Iterator[cluster.Progress]:
    """A stage's progress, to be called with (done, of how many)."""
    if quiet:
        yield cluster.silent
    elif console.is_terminal:
        with _bar(name, unit) as show:
            yield show
    else:
        yield _Lines(name, unit)


@contextmanager
def _bar(name: str, unit: str) -> Iterator[cluster.Progress]:
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        Rate(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=True)
    task, started, shown = bar.add_task(name), time.monotonic(), False

    def show(done: int, total: int) -> None:
        nonlocal shown
        bar.update(task, completed=done, total=total)
        if not shown and time.monotonic() - started > PATIENCE_SECONDS and done < total:
            bar.start()
            shown = True

    try:
        yield show
    finally:
        bar.stop()


class _Lines:
    """Plain lines with rate and remaining time."""

    def __init__(self, name: str, unit: str) -> None:
        self.name, self.unit = name, unit
        self.started = self.last = time.monotonic()
        self.first: int | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        self.first = done if self.first is None else self.first  # a run that goes on does not begin at 0
        if now - self.last < LINE_SECONDS or done >= total:
            return
        self.last = now
        speed = (done - self.first) / (now - self.started)
        left = f", {(total - done) / speed:,.0f} s left" if speed else ""
        print(f"{self.name}: {done:,} of {total:,} {self.unit}, {speed:,.1f}/s{left}", file=sys.stderr, flush=True)
