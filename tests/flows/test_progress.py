"""What is shown while a stage runs: by the clock, so the tests bring a clock of their own or do not wait."""

import io
import time

import pytest
from rich.console import Console

from flows import progress
from flows.progress import Bar, Lines, watched


@pytest.fixture
def impatient(monkeypatch):
    """The same rules in a fiftieth of the time."""
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.04)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.2)


def test_a_stage_that_ends_soon_shows_nothing(capsys):
    with watched("documents") as show:
        show(0, 3)
        show(3, 3)
    assert capsys.readouterr().err == ""


def lines(capsys, count, limit=30):
    """What is shown until there are so many lines."""
    shown, end = "", time.monotonic() + limit
    while shown.count("\n") < count and time.monotonic() < end:
        time.sleep(0.01)
        shown += capsys.readouterr().err
    return shown.splitlines()


def test_a_longer_stage_shows_a_line_and_then_one_each_interval(impatient, capsys):
    began = time.monotonic()
    with watched("documents") as show:
        show(1, 3)
        found = lines(capsys, 3)
    assert found[:3] == ["documents: 1 of 3 shards"] * 3
    assert time.monotonic() - began > progress.PATIENCE_SECONDS + 2 * progress.LINE_SECONDS


def test_a_stage_that_cannot_tell_says_how_long_it_takes(impatient, capsys):
    with watched("vocabulary"):
        found = lines(capsys, 1)
    assert found[0] == "vocabulary: 0 s so far"


def test_nothing_is_shown_once_a_stage_has_failed(impatient, capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.5)
    with pytest.raises(ValueError, match="x"), watched("documents"):
        raise ValueError("x")
    time.sleep(0.7)
    assert capsys.readouterr().err == ""


def test_rate_and_remaining_time_count_from_the_first_call():
    lines = Lines("weights", "steps")
    lines.begun, lines.first, lines.last = 0.0, (100.0, 1000), (110.0, 1500, 2500)  # Ray started; a run went on
    assert lines.text() == "1,500 of 2,500 steps, 50.0/s, 20 s left"


def test_a_line_has_no_rate_before_the_second_call():
    lines = Lines("weights", "steps")
    lines(7, 100)
    assert lines.text() == "7 of 100 steps"


def test_a_terminal_gets_a_bar_with_count_and_unit_that_goes_away():
    out = io.StringIO()
    bar = Bar("weights", "steps", Console(file=out, force_terminal=True, width=100))
    bar(1, 4)
    bar.show()
    bar(2, 4)
    bar.close()
    assert "weights" in out.getvalue() and "2/4" in out.getvalue() and "steps" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")  # the line is erased


def test_a_bar_of_a_stage_that_ends_soon_is_never_drawn():
    out = io.StringIO()
    bar = Bar("weights", "steps", Console(file=out, force_terminal=True, width=100))
    bar(1, 4)
    bar.close()
    assert "weights" not in out.getvalue()
