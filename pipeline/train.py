"""
Ray Train: the worker's loop, checkpoints, measures. Which numbers come out does not depend on the workers.

Every worker runs `work`: it builds a `Run`, takes up a checkpoint if there is one, and iterates over the steps that are
left. What only some workers do (measuring, telling how far the run is, having the next epoch made) touches neither
weights nor random state, and whatever all must do together, they do equally often.
"""

import math
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
from models.recipe import Recipe, Training, digest
from models.step import Batch, Setup, World, step_gradient, trainable
from models.trouble import MendableError
from pipeline import batches as making
from pipeline.cluster import Progress, interruptible, processors, silent, start
from pipeline.reader import Epoch
from pipeline.store import Store
from pipeline.vocabulary import Vocabulary
from pipeline.word_vectors import tables

WEIGHTS_VERSION = 1
STATE = "state.pt"
PROGRESS_SECONDS = 1.0
CHECKPOINTS = 10  # of a run, if the recipe does not say otherwise
CHECKPOINT_SECONDS = 10.0  # between them at least; writing one takes up to a second
RETRIES = 3  # of a run whose worker or node died
NO_RESULT = frozenset({"cached", "log_steps", "checkpoint_steps", "start"})  # settings that change no weight


class TrainingError(MendableError, RuntimeError):
    """A run that would fail the same way each time."""


@dataclass(frozen=True)
class Job:
    """All that decides the weights; the number of workers and their hardware are not here."""

    store: str
    recipe: Recipe
    source: making.Source
    vocabulary: Vocabulary
    given: str = ""  # digest of the files that the recipe names: weights to start from, ready word tables

    @property
    def run(self) -> str:
        """Where checkpoints lie in the store until the weights are there."""
        return f"runs/{self.recipe.name}-{self.key}"

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
        return digest("weights", WEIGHTS_VERSION, what, lanes, self.plan, self.vocabulary.digest, self.given)


@dataclass
class State:
    """How far a run is; it stands in each checkpoint beside weights and optimizer, so restoring is exact."""

    step: int = 0
    steps: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    rows: int = 0
    seconds: float = 0.0
    taken_up: list[int] = field(default_factory=list)  # steps at which a killed run was gone on with
    operations: float = 0.0
    peak_share: float | None = None


def build(job: Job) -> Method:
    """
    The method at step 0: random weights from the seed, ready tables as they are; or those of `training.start`.

    Raises:
        TrainingError: the model to start from has other words or other shapes.
    """
    torch.manual_seed(job.recipe.training.seed)
    training = job.recipe.training
    counts = torch.tensor(job.vocabulary.counts, dtype=torch.float32)
    ready = tables(job.recipe, job.vocabulary)
    method = Method(job.recipe, job.vocabulary.size, ready, counts / counts.sum())
    if training.start != "fresh":
        _take_over(method, job.vocabulary, training.start)
    return method.to(torch.float64) if training.precision == "fp64" else method


def _take_over(method: Method, vocabulary: Vocabulary, folder: str) -> None:
    model = load(folder)
    if model.tokenizer.get_vocab() != vocabulary.words():
        raise TrainingError(
            f"training.start is {folder}, which numbers words differently from this corpus's vocabulary; use its own: "
            f"--set tokenizer.kind=saved --set tokenizer.path={folder}"
        )
    try:
        method.load_state_dict(model.method.state_dict())
    except RuntimeError as error:
        cause = " ".join(line.strip() for line in str(error).splitlines()[:2])
        raise TrainingError(f"training.start is {folder}, whose encoder is not the recipe's: {cause}") from None


def steps(training: Training, epoch_steps: int) -> int:
    """Steps of a run whose epochs have so many."""
    whole = training.epochs * epoch_steps
    return min(training.steps or whole, whole)


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
        self._open = (0, epochs(0))
        self.state = State(steps=steps(training, self._open[1].batches))

    def __iter__(self) -> Iterator[State]:
        """Take the steps that are left; yields after each."""
        while self.state.step < self.state.steps:
            self._step(self._batch(self.state.step))
            yield self.state

    def _batch(self, step: int) -> Batch:
        """A step's batch; every epoch holds the same rows, so the same number of batches."""
        number, place = divmod(step, self._open[1].batches)
        if number != self._open[0]:
            self._open = (number, self.epochs(number))
        return self._open[1][place]

    def _step(self, batch: Batch) -> None:
        started, state, training = time.perf_counter(), self.state, self.job.recipe.training
        for group in self.optimizer.param_groups:
            group["lr"] = rate(training, state.step, state.steps)
        loss = step_gradient(self.method, batch, state.step, self.setup, self.world)
        clip(self.parameters, training)
        self.optimizer.step()
        if state.step % training.log_steps == 0 or state.step == state.steps - 1:
            state.losses.append((state.step, loss))
        state.step += 1
        state.rows += len(batch.length_B)
        state.seconds += time.perf_counter() - started

    def count_operations(self) -> None:
        """
        Count the floating-point operations in matrix products of a row, forward and backward, on the first batch.

        Not on a step that counts: operations are taken apart to be counted, which may round differently. Weights stay
        as they are, and the random state is set anew in each lane of a step.
        """
        batch = self._batch(0)
        with FlopCounterMode(display=False) as counter:
            step_gradient(self.method, batch, 0, self.setup, self.world)
        self.state.operations = counter.get_total_flops() * self.world.size / len(batch.length_B)

    def checkpoint_steps(self) -> int:
        """Steps between checkpoints, the same on every worker; to be asked after a step was taken."""
        state, wanted = self.state, self.job.recipe.training.checkpoint_steps
        if wanted:
            return wanted
        seconds = torch.tensor(state.seconds / state.step, device=self.world.device)
        if self.world.size > 1:
            dist.broadcast(seconds, 0)
        return max(1, -(-state.steps // CHECKPOINTS), math.ceil(CHECKPOINT_SECONDS / seconds.item()))

    def check(self) -> None:
        """
        Refuse weights that are no numbers: a gradient may overflow where the loss did not.

        Raises:
            FloatingPointError: a weight is not finite.
        """
        wrong = [name for name, weight in self.method.named_parameters() if not weight.isfinite().all()]
        if wrong:
            raise FloatingPointError(
                f"step {self.state.step}: {', '.join(wrong)} holds numbers that are not finite; try "
                "training.precision=fp32 or a lower training.rate"
            )

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
            TrainingError: it belongs to another training key.
        """
        whole = torch.load(folder / STATE, weights_only=True, map_location=self.world.device)
        if whole["key"] != self.job.key:
            raise TrainingError(f"checkpoint in {folder} is of training {whole['key']}, this one is {self.job.key}")
        self.method.load_state_dict(whole["weights"])
        self.optimizer.load_state_dict(whole["optimizer"])
        self.state = State(**whole["state"])
        self.state.taken_up.append(self.state.step)


def work(config: dict[str, Any]) -> str | None:
    """
    The loop of one Ray Train worker.

    Returns:
        What went wrong with the numbers: Ray would start a worker that raises again, and it would end the same.
    """
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
    try:
        take_steps(run)
    except FloatingPointError as error:
        return str(error)
    if world.size > 1:
        dist.barrier()  # leaving while another still reduces aborts the process
    return None


def take_steps(run: Run) -> None:
    """The steps that are left, with a word on the way and checkpoints."""
    world, told, between = run.world, 0.0, 0
    limit = peak(run.setup.precision, world.device) * world.size if world.rank == 0 else 0.0
    if not run.state.operations:
        run.count_operations()
    for state in run:
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


def fit(job: Job, workers: int, gpu: bool, progress: Progress = silent) -> Trained:
    """
    Train on Ray; a run of the same key that was killed goes on from its last checkpoint.

    Raises:
        ray.train.TrainingFailedError: workers kept failing.
        TrainingError: the numbers did not stay finite.
    """
    from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    # One processor is left to Ray and the driver: a step in which one of all its threads has to wait takes many times
    # as long (2 cores, one busy: 0.23 s instead of 0.01 s).
    threads = max(1, (processors() - 1) // workers)
    loop: Any = work  # Ray's annotation knows of no result, its documentation does
    trainer = TorchTrainer(
        loop,
        train_loop_config={"job": job, "threads": threads},
        torch_config=TorchConfig(),  # NCCL with GPUs, else gloo
        scaling_config=ScalingConfig(num_workers=workers, use_gpu=gpu),
        run_config=RunConfig(
            name=job.run.removeprefix("runs/"),
            storage_path=Store(job.store).path("runs"),
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
        state = State(**torch.load(Path(folder) / STATE, weights_only=True, map_location="cpu")["state"])
    assert state.step == state.steps, f"the run ended after {state.step} of {state.steps} steps"
    return Trained(f"{job.run}/{Path(result.checkpoint.path).name}", state)


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
