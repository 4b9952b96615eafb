"""A Ray session, local or joined, and a function mapped over shards with progress and retries."""

import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from models.trouble import MendableError
from pipeline import settings

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]  # done, of how many

RETRIES = 3  # of a task whose worker process or node died; its own errors are not tried again
AHEAD = 2  # tasks asked for per processor of the cluster: each has its next one ready
OBJECT_STORE = 200_000_000  # bytes; only paths and small records travel


class ClusterError(MendableError, RuntimeError):
    """A cluster that cannot be joined."""


def silent(done: int, total: int) -> None:
    """Progress that nobody watches."""


@contextmanager
def session(workers: int = 1) -> Iterator[None]:
    """
    Ray for whatever the block needs it for: started when first needed, ended with the block.

    The cluster at RAY_ADDRESS is joined if that is set; else one of our own starts on this machine. Within another
    session nothing is ended.
    """
    global _workers
    import ray

    before, outer = _workers, _workers is not None or ray.is_initialized()
    _workers = max(workers, before or 1)
    try:
        yield
    finally:
        _workers = before
        if not outer and ray.is_initialized():
            ray.shutdown()


def start() -> None:
    """
    Start or join Ray, unless it runs.

    Raises:
        ClusterError: nothing answers at RAY_ADDRESS.
    """
    import ray

    if ray.is_initialized():
        return
    common: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": False}
    address = os.environ.get("RAY_ADDRESS")
    if address:
        try:
            ray.init(runtime_env={"env_vars": settings.DEFAULTS}, **common)
        except ConnectionError as error:
            reason = str(error).partition("\n")[0]
            raise ClusterError(
                f"RAY_ADDRESS is {address}: {reason}; start a cluster there (ray start --head), or unset it to use "
                "this machine alone"
            ) from error
    else:
        cpus = max(processors(), _workers or 1)
        ray.init(num_cpus=cpus, include_dashboard=False, object_store_memory=OBJECT_STORE, **common)


_workers: int | None = None  # training workers that the open session must have room for


@contextmanager
def interruptible() -> Iterator[None]:
    """
    A block in which Ctrl-C stays what it is.

    Ray Train takes the signal over to end its workers, then ends the whole process as if all were well, and keeps the
    signal for ever after.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit:
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def map_shards(
    function: Callable[[Item], Result], items: Sequence[Item], progress: Progress = silent, alone: int = 1
) -> list[Result]:
    """
    The function's result for each item, in order; each runs in a Ray task on one processor.

    No more than `alone` items run in this process. An error of the function ends the whole, as itself; what other tasks
    had committed to the store stays.
    """
    progress(0, len(items))
    if len(items) <= alone:
        results = [function(item) for item in items]
        progress(len(items), len(items))
        return results
    with session():
        return _map(function, items, progress)


def _map(function: Callable[[Item], Result], items: Sequence[Item], progress: Progress) -> list[Result]:
    import ray

    start()
    task: Any = ray.remote(num_cpus=1, max_retries=RETRIES)(_call)
    left = enumerate(items)
    waiting: dict[Any, int] = {}
    results: dict[int, Result] = {}
    try:
        while len(results) < len(items):
            # No more than the cluster is about to run: after an error the rest is simply not asked for. A cancelled
            # task that may be retried can end the whole process (Ray 2.58: "tried to complete task that was not
            # pending"), so none is ever cancelled.
            room = AHEAD * max(int(ray.cluster_resources().get("CPU", 1)), 1) - len(waiting)
            waiting |= {task.remote(function, item): number for number, item in islice(left, max(room, 0))}
            done, _ = ray.wait(list(waiting), num_returns=1)
            for reference in done:
                results[waiting.pop(reference)] = ray.get(reference)
            progress(len(results), len(items))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error  # which holds the worker's traceback
    return [results[number] for number in range(len(items))]


def _call(function: Callable[[Item], Result], item: Item) -> Result:
    return function(item)


def scratch() -> Path:
    """A folder of this machine for files that need not outlive the run."""
    return Path(os.environ.get("FIRTH_SCRATCH") or tempfile.gettempdir())
