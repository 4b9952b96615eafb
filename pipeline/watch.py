"""
What is measured while a run trains, and the weights that were best so far.

The first worker measures, the others wait for it in the next step. Neither weights nor random state are touched: a run
ends the same whether anybody looks at it or not, unless it is to end with its best step.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import polars as pl
import torch

from models.model import Model, ready
from models.parts import bind
from models.recipe import Watch
from models.trouble import MendableError
from pipeline import scoring
from pipeline.evaluate import EVALUATIONS, completed
from pipeline.evaluations.scores import Scores
from pipeline.run import Best, Job, Run
from pipeline.store import Store


class WatchError(MendableError, ValueError):
    """A figure that is to be followed and is not there."""


class Watcher:
    """Called before a run's first step and after each one; measures when it is time to."""

    def __init__(self, run: Run) -> None:
        self.run, self.watch = run, run.job.recipe.watch
        self._model: Model | None = None
        self._held_out = pl.DataFrame()

    def __call__(self) -> None:
        """
        Measure if it is time, and keep the weights if none before were better.

        Raises:
            WatchError: the recipe follows a figure that no evaluation gives.
        """
        state, steps = self.run.state, self.watch.steps
        seen = bool(state.watched) and state.watched[-1][0] == state.step
        if not steps or seen or self.run.world.rank or (state.step % steps and state.step < state.steps):
            return
        scores = self._measured()
        found = {name: value for score in scores for name, value in score.figures.items()}
        state.watched.append((state.step, found))
        if not self.watch.best:
            return
        figure = followed(self.watch, scores)
        # What a run began with is no result of it.
        if figure is not None and state.step and better(self.watch, figure, self.run.best):
            weights = {name: weight.detach().cpu().clone() for name, weight in self.run.method.state_dict().items()}
            self.run.best = Best(state.step, figure, weights)

    def _measured(self) -> list[Scores]:
        """Scores of the model as it is, whose vectors are in the precision that it trains in."""
        run, random = self.run, torch.get_rng_state()
        if self._model is None:  # made once: a large vocabulary takes seconds to read
            rounding = partial(run.setup.autocast, run.world.device)
            self._model = replace(ready(run.method, run.job.vocabulary.tokenizer, {}), rounding=rounding)
            self._held_out = held_out(run.job)
        run.method.eval()
        try:
            choices = [completed(choice, "watch.evaluation") for choice in self.watch.evaluation]
            return [bind(EVALUATIONS, choice)(self._model, self._held_out) for choice in choices]
        finally:
            run.method.train()
            torch.set_rng_state(random)


def followed(watch: Watch, scores: Sequence[Scores]) -> float | None:
    """
    The figure that a recipe follows; None: not defined now, as a correlation of vectors that are all the same.

    Raises:
        WatchError: no evaluation of that name.
    """
    found = {name: value for score in scores for name, value in score.figures.items()}
    if not any(watch.best.startswith(f"{score.name}.") for score in scores):
        raise WatchError(f'watch.best is "{watch.best}"; figures: {", ".join(sorted(found)) or "none"}')
    figure = found.get(watch.best, math.nan)
    return None if math.isnan(figure) else figure


def better(watch: Watch, figure: float, best: Best | None) -> bool:
    """Whether a figure is better than the best so far; the earlier of two equals stays."""
    if best is None:
        return True
    return figure < best.figure if watch.lowest else figure > best.figure


def held_out(job: Job) -> pl.DataFrame:
    """The held-out sentences that the watched evaluations look at."""
    pieces = list(job.source.sentences.values())
    upto = scoring.sample(pieces, job.recipe.watch.evaluation)
    rows = Store(job.store).scan(pieces).filter("held_out", pl.col("document") <= upto)
    return rows.collect(engine="streaming")
