"""Training runs that tests make: a small corpus's job, with other settings, run in this process."""

import torch

from models.gathering import World
from pipeline import batches as making
from pipeline.reader import Epoch
from pipeline.run import Job, Run
from pipeline.store import Store

EPOCH = 19  # batches of one
STEPS = 3 * EPOCH
SMALL = (
    "encoder.width=6",
    "encoder.word_width=5",
    "encoder.dropout=0.3",
    "batches.lane_rows=3",
    "training.epochs=3",
    "training.log_steps=1",
    "training.precision=fp32",
)


def job_of(made, **settings):
    """The job with some training settings changed."""
    training = made.recipe.training.model_copy(update=settings)
    recipe = made.recipe.model_copy(update={"training": training})
    return Job(made.store.root, recipe, made.source, made.vocabulary)


def new_run(job, opened=None):
    """A run in this process; `opened` is told which epochs it opens."""

    def epochs(number):
        if opened is not None:
            opened.append(number)
        store, recipe = Store(job.store), job.recipe
        return Epoch(store, making.epoch(store, recipe.batches, recipe.training.seed, number, job.source))

    return Run(job, World(), epochs)


def finish(run):
    """Take all steps that are left."""
    for _ in run:
        pass
    return run


def numbers(state):
    """The logged losses."""
    return torch.tensor([loss for _, loss in state.losses], dtype=torch.float64)


def difference(left, right):
    """Largest relative difference; of numbers below 1e-3 the absolute one in thousandths."""
    return ((left - right).abs() / left.abs().clamp(min=1e-3)).max().item()


def flat(weights):
    """All numbers of a state dictionary, one behind the other."""
    return torch.cat([weight.flatten() for weight in weights.values()])
