"""
A training run on one worker: what is trained, how far it is, and the loop over steps, restorable at any of them.

Nothing here knows Ray; workers meet in a step's collectives alone.
"""

import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from models.batch import Batch
from models.encoding import Setup
from models.folder import load
from models.gathering import World
from models.method import Method
from models.noise import Counted
from models.optimizer import clip, optimizer, rate
from models.recipe import Recipe, Training, digest
from models.reduction import trainable
from models.step import step_gradient
from models.transformer import Transformer
from models.trouble import MendableError
from pipeline import batches as making
from pipeline.reader import Epoch
from pipeline.vocabulary import Vocabulary
from pipeline.word_vectors import tables

WEIGHTS_VERSION = 1
STATE = "state.pt"
CHECKPOINTS = 10  # of a run, if the recipe does not say otherwise
CHECKPOINT_SECONDS = 10.0  # between them at least; writing one takes up to a second
NO_RESULT = frozenset({"cached", "log_steps", "checkpoint_steps", "start"})  # settings that change no weight
LATER = {"decay": "all"}  # settings that came after the first keys, and the value that is what was before them


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
        what = self.recipe.model_dump(include={"encoder", "view", "terms", "training", "readout"})
        # What most recipes do without enters no key of theirs.
        what |= {"context": self.recipe.context.model_dump()} if self.recipe.context else {}
        what |= {"watch": self.recipe.watch.model_dump()} if self.recipe.watch.steps else {}
        guide = self.recipe.guide
        what |= {"guide": guide.model_dump(include={"kind", "margin"})} if guide and guide.mask else {}
        what["terms"] = [{k: v for k, v in term.items() if k != "ahead" or v} for term in what["terms"]]
        told = {k: v for k, v in what["training"].items() if k not in NO_RESULT and (k, v) not in LATER.items()}
        what["training"] = told
        lanes = self.recipe.batches.lane_rows
        return digest("weights", WEIGHTS_VERSION, what, lanes, self.plan, self.vocabulary.digest, self.given)


@dataclass
class State:
    """How far a run is; it stands in each checkpoint beside weights and optimizer, so restoring is exact."""

    step: int = 0
    steps: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    bounds: dict[int, list[tuple[int, float]]] = field(default_factory=dict)  # `Method.bounds` at the logged steps
    rows: int = 0
    seconds: float = 0.0
    taken_up: list[int] = field(default_factory=list)  # steps at which a killed run was gone on with
    operations: float = 0.0
    peak_share: float | None = None
    watched: list[tuple[int, dict[str, float]]] = field(default_factory=list)  # figures before so many steps


@dataclass(frozen=True)
class Best:
    """The weights that a run ends with, if they are not its last."""

    step: int
    figure: float
    weights: dict[str, Tensor]


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
    words = Tokenizer.from_str(job.vocabulary.tokenizer)
    counted = Counted(torch.tensor(job.vocabulary.counts, dtype=torch.float64), job.vocabulary.ends)
    method = Method(job.recipe, job.vocabulary.size, ready, counts / counts.sum(), words, counted=counted)
    if training.start != "fresh":
        _take_over(method, job.vocabulary, training.start)
    return method.to(torch.float64) if training.precision == "fp64" else method


def check_words(recipe: Recipe, vocabulary: Vocabulary) -> None:
    """
    Find out before any training whether recipe and vocabulary go together; costs no memory.

    Raises:
        TrainingError: a special word is missing, the encoder has too few words, or no room for a whole sentence.
    """
    if recipe.encoder.kind != "transformer":
        return
    try:
        with torch.device("meta"):
            method = Method(recipe, vocabulary.size, tokenizer=Tokenizer.from_str(vocabulary.tokenizer))
            for term in method.lane_terms:
                cast(Transformer, method.tower(term.tower)).mask_word()
    except ValueError as error:
        raise TrainingError(f"recipe {recipe.name}: {error}") from None
    for tower in recipe.encoder.towers:
        room = cast(Transformer, method.tower(tower)).room()
        if recipe.tokenizer.most_tokens > room:
            raise TrainingError(
                f"tokenizer.most_tokens is {recipe.tokenizer.most_tokens}; the encoder has room for {room} beside "
                "special words and template"
            )


def _take_over(method: Method, vocabulary: Vocabulary, folder: str) -> None:
    model = load(folder)
    if model.tokenizer.get_vocab() != vocabulary.words():
        raise TrainingError(
            f"training.start is {folder}, which numbers words differently from this corpus's vocabulary; use its own: "
            f"--set tokenizer.kind=saved --set tokenizer.path={folder}"
        )
    try:
        method.towers.load_state_dict(model.method.towers.state_dict())
        method.contexts.load_state_dict(model.method.contexts.state_dict())
        method.similarities.load_state_dict(model.method.similarities.state_dict())
        method.told.load_state_dict(model.method.told.state_dict())
        method.start_queues()  # a slow encoder starts as the one that was loaded
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
        lanes = job.recipe.batches.lane_rows
        self.setup = Setup(training.seed, lanes, training.precision, training.cached, training.lazy)
        self._open = (0, epochs(0))
        self.best: Best | None = None
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
        logged = state.step % training.log_steps == 0 or state.step == state.steps - 1
        bound_S = self.method.no_bounds() if logged else None
        loss = step_gradient(self.method, batch, state.step, self.setup, self.world, bound_S)
        self.method.on_gradient()
        clip(self.parameters, training)
        self.optimizer.step()
        self.method.after_step()
        if bound_S is not None:
            state.losses.append((state.step, loss))
            for number, bound in self.method.bounds(bound_S).items():
                state.bounds.setdefault(number, []).append((state.step, bound))
        state.step += 1
        state.rows += len(batch.length_B)
        state.seconds += time.perf_counter() - started

    def count_operations(self) -> None:
        """
        Count the floating-point operations in matrix products of a row, forward and backward, on the first batch.

        Not on a step that counts: operations are taken apart to be counted, which may round differently. Weights and
        queues stay as they are, and the random state is set anew in each lane of a step.
        """
        batch, queues = self._batch(0), deepcopy(self.method.queues.state_dict())
        with FlopCounterMode(display=False) as counter:
            step_gradient(self.method, batch, 0, self.setup, self.world)
        self.method.queues.load_state_dict(queues)
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
            "best": vars(self.best) if self.best else None,
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
        self.best = Best(**whole["best"]) if whole["best"] else None
        self.state.taken_up.append(self.state.step)
