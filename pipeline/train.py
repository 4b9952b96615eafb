"""Ray Train: the worker's loop, checkpoints, measures. Which numbers come out does not depend on the workers."""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.flop_counter import FlopCounterMode

from models.folder import load
from models.method import Method
from models.optimizer import clip, optimizer, rate
from models.precision import peak, resolved
from models.recipe import Recipe, digest
from models.step import Setup, World, step_gradient, trainable
from pipeline import batches as making
from pipeline.cluster import Progress, processors, silent, start
from pipeline.reader import Epoch
from pipeline.store import Store
from pipeline.vocabulary import Vocabulary
from pipeline.word_vectors import tables

WEIGHTS_VERSION = 1
STATE = "state.pt"
PROGRESS_SECONDS = 1.0
NO_RESULT = frozenset({"cached", "log_steps", "checkpoint_steps", "start"})  # settings that change no weight


@dataclass(frozen=True)
class Job:
    """All that decides the weights; the number of workers and their hardware are not here."""

    store: str
    recipe: Recipe
    source: making.Source
    vocabulary: Vocabulary
    start: str = ""  # digest of the weights that `training.start` names; empty: fresh ones

    @property
    def plan(self) -> str:
        """The key that all epochs of the training set share."""
        return making.plan_key(self.recipe.batches, self.recipe.training.seed, self.source)

    @property
    def key(self) -> str:
        """The training key: equal keys, equal weights."""
        what = self.recipe.model_dump(include={"encoder", "terms", "training", "readout"})
        what["training"] = {k: v for k, v in what["training"].items() if k not in NO_RESULT}
        lanes = self.recipe.batches.lane_rows
        return digest("weights", WEIGHTS_VERSION, what, lanes, self.plan, self.vocabulary.digest, self.start)


@dataclass
class State:
    """What a run is at one step; all of it stands in each checkpoint, so restoring is exact."""

    step: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    rows: int = 0
    seconds: float = 0.0
    peak_share: float | None = None


def build(job: Job) -> Method:
    """The method at step 0: random weights from the seed, ready tables as they are."""
    torch.manual_seed(job.recipe.training.seed)
    training = job.recipe.training
    counts = torch.tensor(job.vocabulary.counts, dtype=torch.float32)
    ready = tables(job.recipe, job.vocabulary)
    method = Method(job.recipe, job.vocabulary.size, ready, counts / counts.sum())
    if training.start != "fresh":
        method.load_state_dict(load(training.start).method.state_dict())
    return method.to(torch.float64) if training.precision == "fp64" else method


class Run:
    """
    A training run on one worker: the loop over steps, restorable at any of them.

    Args:
        job: what is trained.
        world: which worker this is.
        epochs: opens epoch e's batches; called by every worker at an epoch's start.
    """

    def __init__(self, job: Job, world: World, epochs: Callable[[int], Epoch]) -> None:
        self.job, self.world, self.epochs = job, world, epochs
        training = job.recipe.training
        self.method = build(job).to(world.device).train()
        self.parameters = list(trainable(self.method))
        self.optimizer = optimizer(self.parameters, training)
        self.setup = Setup(training.seed, job.recipe.batches.lane_rows, training.precision, training.cached)
        self.state = State()
        first = epochs(0)
        self.epoch_steps, self.epoch_rows = first.batches, first.rows
        self.steps = min(training.steps or 1 << 60, training.epochs * self.epoch_steps)

    def checkpoint_steps(self) -> int:
        """Steps between checkpoints."""
        return self.job.recipe.training.checkpoint_steps or max(1, -(-self.steps // 10))

    def __iter__(self) -> Iterator[State]:
        """Take the steps that are left; yields after each."""
        epoch, number = None, -1
        while self.state.step < self.steps:
            wanted, place = self._place(self.state.step)
            if wanted != number:
                epoch, number = self.epochs(wanted), wanted
            assert epoch is not None
            self._step(epoch, place)
            yield self.state

    def _place(self, step: int) -> tuple[int, int]:
        """Epoch and batch of a step; every epoch holds the same rows, so the same number of batches."""
        return divmod(step, self.epoch_steps)

    def _step(self, epoch: Epoch, place: int) -> None:
        started, state, training = time.perf_counter(), self.state, self.job.recipe.training
        for group in self.optimizer.param_groups:
            group["lr"] = rate(training, state.step, self.steps)
        self.optimizer.zero_grad()
        batch = epoch[place]
        loss = step_gradient(self.method, batch, state.step, self.setup, self.world)
        clip(self.parameters, training)
        self.optimizer.step()
        if state.step % training.log_steps == 0 or state.step == self.steps - 1:
            state.losses.append((state.step, loss))
        state.step += 1
        state.rows += self.epoch_rows
        state.seconds += time.perf_counter() - started

    def operations(self) -> float:
        """Floating-point operations in matrix products of a row, forward and backward, counted on the first batch."""
        batch = self.epochs(0)[0]
        with FlopCounterMode(display=False) as counter:
            step_gradient(self.method, batch, 0, self.setup, self.world)
        self.optimizer.zero_grad()
        return counter.get_total_flops() * self.world.size / self.epoch_rows

    def save(self, folder: Path) -> None:
        """Write all of the state."""
        whole = {
            "weights": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "state": vars(self.state),
            "key": self.job.key,
        }
        torch.save(whole, folder / STATE)

    def restore(self, folder: Path) -> None:
        """
        Go on from a checkpoint.

        Raises:
            ValueError: it belongs to another training key.
        """
        whole = torch.load(folder / STATE, weights_only=True, map_location=self.world.device)
        if whole["key"] != self.job.key:
            raise ValueError(f"checkpoint in {folder} is of training {whole['key']}, this one is {self.job.key}")
        self.method.load_state_dict(whole["weights"])
        self.optimizer.load_state_dict(whole["optimizer"])
        self.state = State(**whole["state"])


def work(config: dict[str, Any]) -> None:
    """The loop of one Ray Train worker."""
    from ray import train
    from ray.train.torch import get_device

    job: Job = config["job"]
    context = train.get_context()
    torch.set_num_threads(config["threads"])
    world = World(context.get_world_rank(), context.get_world_size(), get_device())
    run = Run(job, world, epochs_ahead(job, world))
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            run.restore(Path(folder))
    limit = peak(run.setup.precision, world.device) * world.size if world.rank == 0 else 0.0
    operations = run.operations()
    told = 0.0
    for state in run:
        if world.rank == 0 and time.time() - told > PROGRESS_SECONDS:
            told = time.time()
            tell(job, run)
        if state.step % run.checkpoint_steps() == 0 or state.step == run.steps:
            if limit:
                state.peak_share = operations * state.rows / state.seconds / limit
            report(run, world)
    if world.size > 1:
        dist.barrier()  # leaving while another still reduces aborts the process


def report(run: Run, world: World) -> None:
    """Hand a checkpoint to Ray Train; every worker reports equally often, the first one brings the files."""
    from ray import train

    state = run.state
    metrics = {"step": state.step, "loss": state.losses[-1][1], "rows_per_second": state.rows / state.seconds}
    if world.rank:
        train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        run.save(Path(folder))
        train.report(
            metrics,
            checkpoint=train.Checkpoint.from_directory(folder),
            checkpoint_dir_name=f"step_{state.step:08d}",
        )


def tell(job: Job, run: Run) -> None:
    """Say how far the run is, in a small object that the driver reads."""
    state = run.state
    record = {
        "step": state.step,
        "steps": run.steps,
        "loss": state.losses[-1][1],
        "rows": state.rows,
        "seconds": state.seconds,
    }
    Store(job.store).put(f"progress/{job.key}.json", record)


def epochs_ahead(job: Job, world: World) -> Callable[[int], Epoch]:
    """Opens an epoch; the first worker has the next one made meanwhile, by a task of its own."""
    import ray

    store, settings, seed = Store(job.store), job.recipe.batches, job.recipe.training.seed
    last = job.recipe.training.epochs - 1
    make = ray.remote(num_cpus=0)(making.epoch)
    coming: dict[int, Any] = {}

    def begin(number: int) -> None:
        if number <= last and number not in coming:
            coming[number] = make.remote(store, settings, seed, number, job.source)

    def open_epoch(number: int) -> Epoch:
        if world.rank == 0:
            begin(number)
            ray.get(coming[number])
            begin(number + 1)
        if world.size > 1:
            dist.barrier()
        piece = store.piece("batches", making.epoch_key(job.plan, number))
        assert piece is not None
        return Epoch(store, piece)

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
    """A finished run: its checkpoint's folder, and what it measured."""

    checkpoint: str
    state: State
    workers: int
    precision: str


def fit(job: Job, workers: int, gpu: bool, progress: Progress = silent) -> Trained:
    """
    Train on Ray; a run of the same key that was killed goes on from its last checkpoint.

    Raises:
        ray.train.TrainingFailedError: workers kept failing.
    """
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    threads = max(1, processors() // workers)
    trainer = TorchTrainer(
        work,
        train_loop_config={"job": job, "threads": threads},
        torch_config=TorchConfig(),  # NCCL with GPUs, else gloo
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
        run_config=RunConfig(
            name=f"{job.recipe.name}-{job.key}",
            storage_path=Store(job.store).path("runs"),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            failure_config=FailureConfig(max_failures=3),
        ),
    )
    with watched(job, progress):
        result = trainer.fit()
    assert result.checkpoint is not None
    with result.checkpoint.as_directory() as folder:
        whole = torch.load(Path(folder) / STATE, weights_only=True, map_location="cpu")
    return Trained(result.checkpoint.path, State(**whole["state"]), workers, job.recipe.training.precision)


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
