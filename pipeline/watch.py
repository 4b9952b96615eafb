"""
What is measured while a run trains, and the weights that were best so far.

The first worker measures, the others wait for it in the next step. Neither weights nor random state are touched: a run
ends the same whether anybody looks at it or not, unless it is to end with its best step.
"""

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
        found = self._measured()
        state.watched.append((state.step, found))
        if self.watch.best and self.watch.best not in found:
            raise WatchError(f'watch.best is "{self.watch.best}"; figures: {", ".join(sorted(found)) or "none"}')
        # What a run began with is no result of it.
        if self.watch.best and state.step and better(self.watch, found[self.watch.best], self.run.best):
            weights = {name: weight.detach().cpu().clone() for name, weight in self.run.method.state_dict().items()}
            self.run.best = Best(state.step, found[self.watch.best], weights)

    def _measured(self) -> dict[str, float]:
        """Figures of the model as it is, whose vectors are in the precision that it trains in."""
        run, random = self.run, torch.get_rng_state()
        if self._model is None:  # made once: a large vocabulary takes seconds to read
            rounding = partial(run.setup.autocast, run.world.device)
            self._model = replace(ready(run.method, run.job.vocabulary.tokenizer, {}), rounding=rounding)
            self._held_out = held_out(run.job)
        run.method.eval()
        try:
            choices = [completed(choice, "watch.evaluation") for choice in self.watch.evaluation]
            scores = [bind(EVALUATIONS, choice)(self._model, self._held_out) for choice in choices]
            return {name: value for score in scores for name, value in score.figures.items()}
        finally:
            run.method.train()
            torch.set_rng_state(random)


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
