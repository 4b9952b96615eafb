"""
Ray Train: workers that take a run's steps, their checkpoints and measures.

What only some workers do (measuring, telling how far the run is, having the next epoch made) touches neither weights
nor random state, and whatever all must do together, they do equally often.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from models.gathering import World
from models.precision import peak, resolved
from models.recipe import Recipe
from models.trouble import MendableError
from pipeline import batches as making
from pipeline.cluster import Progress, interruptible, processors, silent, start
from pipeline.reader import Epoch
from pipeline.remote import remedy, storage
from pipeline.run import STATE, Job, Run, State, TrainingError, steps
from pipeline.store import Store
from pipeline.watch import Watcher

PROGRESS_SECONDS = 1.0
RETRIES = 3  # of a run whose worker or node died


def work(config: dict[str, Any]) -> str | None:
    """
    The loop of one Ray Train worker.

    Returns:
        What went wrong with the numbers, or with what was asked for: Ray would start a worker that raises again, and
        it would end the same.
    """
    from ray import train
    from ray.train.torch import get_device

    job: Job = config["job"]
    context = train.get_context()
    torch.set_num_threads(config["threads"])
    world = World(context.get_world_rank(), context.get_world_size(), get_device())
    try:
        run = Run(job, world, epochs_ahead(job, world))
        checkpoint = train.get_checkpoint()
        if checkpoint:
            with checkpoint.as_directory() as folder:
                run.restore(Path(folder))
        take_steps(run)
    except (FloatingPointError, MendableError) as error:
        return str(error)
    except OSError as error:
        mend = remedy(error)
        if mend is None or world.size > 1:  # the other workers wait in a collective until this one is known to be dead
            raise
        return f"{error}; {mend}"
    if world.size > 1:
        dist.barrier()  # leaving while another still reduces aborts the process
    return None


def take_steps(run: Run) -> None:
    """The steps that are left, with a word on the way and checkpoints."""
    world, told, between, watch = run.world, 0.0, 0, Watcher(run)
    limit = peak(run.setup.precision, world.device) * world.size if world.rank == 0 else 0.0
    if not run.state.operations:
        run.count_operations()
    watch()
    for state in run:
        watch()
        between = between or run.checkpoint_steps()
        if world.rank == 0 and time.time() - told > PROGRESS_SECONDS:
            told = time.time()
            tell(run)
        if state.step % between == 0 or state.step == state.steps:
            if world.rank == 0:
                state.peak_share = state.operations * state.rows / state.seconds / limit
            report(run)


def report(run: Run) -> None:
    """Hand a checkpoint to Ray Train; every worker reports equally often, the first one brings the files."""
    from ray import train

    run.check()
    state = run.state
    metrics = {"step": state.step, "loss": state.losses[-1][1], "rows_per_second": state.rows / state.seconds}
    if run.world.rank:
        train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        run.save(Path(folder))
        train.report(
            metrics,
            checkpoint=train.Checkpoint.from_directory(folder),
            checkpoint_dir_name=f"step_{state.step:08d}",
        )


def tell(run: Run) -> None:
    """Say how far the run is, in a small object that the driver reads."""
    state = run.state
    record = {
        "step": state.step,
        "steps": state.steps,
        "loss": state.losses[-1][1],
        "rows": state.rows,
        "seconds": state.seconds,
    }
    Store(run.job.store).put(f"progress/{run.job.key}.json", record)


def epochs_ahead(job: Job, world: World) -> Callable[[int], Epoch]:
    """Opens an epoch; the first worker has the next one made meanwhile, by a task of its own."""
    import ray

    store, training, plan = Store(job.store), job.recipe.training, job.plan
    make = ray.remote(num_cpus=0)(making.epoch)
    coming: dict[int, Any] = {}

    def begin(number: int) -> None:
        if number not in coming and store.piece("batches", making.epoch_key(plan, number)) is None:
            coming[number] = make.remote(store, job.recipe.batches, training.seed, number, job.source)

    def open_epoch(number: int) -> Epoch:
        if world.rank == 0:
            begin(number)
            if number in coming:
                ray.get(coming.pop(number))
        if world.size > 1:
            dist.barrier()
        piece = store.piece("batches", making.epoch_key(plan, number))
        assert piece is not None
        epoch = Epoch(store, piece)
        if world.rank == 0 and (number + 1) * epoch.batches < steps(training, epoch.batches):
            begin(number + 1)
        return epoch

    return open_epoch


def precise(recipe: Recipe, gpu: bool) -> Recipe:
    """The recipe with `training.precision` as the workers' hardware makes it; on a cluster one of them is asked."""
    wanted: str = recipe.training.precision
    device = torch.device("cuda" if gpu else "cpu")
    if wanted == "auto" and os.environ.get("RAY_ADDRESS"):
        import ray

        start()
        ask: Any = ray.remote(num_gpus=int(gpu))(resolved)
        wanted = str(ray.get(ask.remote(wanted, device)))
    training = recipe.training.model_copy(update={"precision": resolved(wanted, device)})
    return recipe.model_copy(update={"training": training})


@dataclass(frozen=True)
class Trained:
    """A finished run: its last checkpoint's folder in the store, and what it measured."""

    checkpoint: str
    state: State
    best_step: int | None = None


def fit(job: Job, workers: int, gpu: bool, progress: Progress = silent) -> Trained:
    """
    Train on Ray; a run of the same key that was killed goes on from its last checkpoint.

    Raises:
        ray.train.TrainingFailedError: workers kept failing.
        TrainingError: the numbers did not stay finite.
    """
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    # One processor is left to Ray and the driver: a step one of whose threads has to wait takes many times as long.
    threads = max(1, (processors() - 1) // workers)
    loop: Any = work  # Ray's annotation knows of no result, its documentation does
    trainer = TorchTrainer(
        loop,
        train_loop_config={"job": job, "threads": threads},
        torch_config=TorchConfig(),  # NCCL with GPUs, else gloo
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
        run_config=RunConfig(
            name=job.run.removeprefix("runs/"),
            **storage(Store(job.store).path("runs")),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            failure_config=FailureConfig(max_failures=RETRIES),
        ),
    )
    with watched(job, progress), interruptible():
        result = trainer.fit()
    trouble = getattr(result, "return_value", None)
    if trouble:
        raise TrainingError(str(trouble))
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        whole = torch.load(Path(folder) / STATE, weights_only=True, map_location="cpu")
    state, best = State(**whole["state"]), whole["best"]
    assert state.step == state.steps, f"the run ended after {state.step} of {state.steps} steps"
    return Trained(f"{job.run}/{Path(result.checkpoint.path).name}", state, best["step"] if best else None)


@contextmanager
def watched(job: Job, progress: Progress, poll_seconds: float = 0.5) -> Iterator[None]:
    """Pass on, from a thread, how far the run says that it is."""
    store, stop, name = Store(job.store), threading.Event(), f"progress/{job.key}.json"

    def watch() -> None:
        while not stop.wait(poll_seconds):
            record = store.get(name)
            if record:
                progress(record["step"], record["steps"])

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        store.delete(name)
