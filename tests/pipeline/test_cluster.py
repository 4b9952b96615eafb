import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ray import cloudpickle

from pipeline import cluster, settings
from pipeline.cluster import map_shards

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests


class RefusedError(ValueError):
    """An error of a stage's own class."""


def squared(item: int) -> int:
    if item == 13:
        raise RefusedError("thirteen")
    return item * item


def killed_once(mark: Path) -> int:
    """Ends its own process the first time that it is called with a mark that is not there."""
    if not mark.exists():
        mark.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def marked(mark: Path) -> None:
    """Leaves a mark; the first of all fails, and the others take their time once it has."""
    mark.write_text("")
    if mark.name == "0":
        raise RefusedError("zero")
    end = time.monotonic() + 60
    while not mark.with_name("0").exists() and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.1)


def test_a_single_item_runs_in_this_process_and_none_needs_nothing():
    seen = []
    assert map_shards(lambda _: os.getpid(), [1], lambda done, total: seen.append((done, total))) == [os.getpid()]
    assert map_shards(squared, []) == []
    assert seen == [(0, 1), (1, 1)]


@pytest.mark.ray
def test_results_come_in_order_and_progress_is_told(ray_session):
    seen: list[tuple[int, int]] = []
    assert map_shards(squared, range(5), lambda done, total: seen.append((done, total))) == [0, 1, 4, 9, 16]
    assert seen == [(done, 5) for done in range(6)]


@pytest.mark.ray
def test_an_error_of_the_function_comes_out_as_itself(ray_session):
    with pytest.raises(ValueError, match=r"^thirteen$") as error:
        map_shards(squared, [1, 13, 2])
    assert type(error.value).__name__ == "RefusedError"


@pytest.mark.ray
def test_after_an_error_tasks_that_were_not_asked_for_yet_are_never_run(tmp_path, ray_session):
    with pytest.raises(ValueError, match=r"^zero$"):
        map_shards(marked, [tmp_path / str(number) for number in range(60)])
    marks = lambda: len(list(tmp_path.iterdir()))
    before = 0
    while before < marks():  # until all that were asked for have run: none takes long
        before = marks()
        time.sleep(1.5)
    assert 1 <= before < 30


@pytest.mark.ray
def test_a_task_whose_worker_is_killed_is_tried_again(tmp_path, ray_session):
    processes = map_shards(killed_once, [tmp_path / "a", tmp_path / "b"])
    assert {name.name for name in tmp_path.iterdir()} == {"a", "b"}
    assert os.getpid() not in processes


@pytest.mark.ray
def test_a_session_within_a_session_ends_nothing(ray_session):
    import ray

    before = cluster._workers
    with cluster.session(workers=7):
        assert cluster._workers == 7
    assert ray.is_initialized()
    assert cluster._workers == before


def test_scratch_is_where_the_user_says(tmp_path, monkeypatch):
    monkeypatch.setenv("FIRTH_SCRATCH", str(tmp_path))
    assert cluster.scratch() == tmp_path


def test_defaults_are_set_by_importing_and_leave_what_the_user_has_set():
    code = "import os; from pipeline import settings; print(os.environ['DO_NOT_TRACK'], os.environ['HF_HUB_OFFLINE'])"
    plain = {name: value for name, value in os.environ.items() if name not in settings.DEFAULTS}
    said = subprocess.run(
        [sys.executable, "-c", code], env={**plain, "HF_HUB_OFFLINE": "0"}, capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["true", "0"]
