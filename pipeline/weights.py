"""The `weights` stage: one training run per key, however many runs ask for it; its result is a model folder."""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from models.folder import save
from models.recipe import Watch
from models.usage import usage
from pipeline import batches
from pipeline.cluster import Progress, scratch, silent, start
from pipeline.lease import lease
from pipeline.run import STATE, Job, TrainingError, build
from pipeline.store import Store
from pipeline.train import fit
from pipeline.word_vectors import scarce


@dataclass(frozen=True)
class Weights:
    """Trained weights: the folder's name in the store, and what the run measured."""

    key: str
    folder: str
    training: Mapping[str, Any]
    seconds: float
    cached: bool

    def row(self) -> dict[str, Any]:
        """The stage as `--json` shows it."""
        return {
            "name": "weights",
            "key": self.key,
            "seconds": round(self.seconds, 3),
            "cached": self.cached,
            "shards_new": int(not self.cached),
            "shards_same": int(self.cached),
            "shards_gone": 0,
            "rows": self.training["steps"] * self.training["batch_rows"],
            "quarantined": 0,
        }


def weights(
    store: Store,
    job: Job,
    lineage: Mapping[str, Any],
    *,
    workers: int = 1,
    gpu: bool = False,
    progress: Progress = silent,
) -> Weights:
    """
    The weights of a job: those that exist, or newly trained ones. One run trains a key, others wait for it.

    Raises:
        ray.train.TrainingFailedError: workers kept failing.
        TrainingError: the numbers did not stay finite, or no weight moved.
    """
    made = once(store, job.key, partial(_trained, store, job, lineage, workers, gpu, progress))
    if not made.cached:
        _discard(store, job)
    return made


def once(store: Store, key: str, make: Callable[[], tuple[str, dict[str, Any]]]) -> Weights:
    """
    The weights of a key: those that exist, or what `make` makes. One run makes a key, others wait for it.

    Args:
        make: gives a model folder's name in the store, and what the summary says of training.
    """
    started = time.time()
    there = _found(store, key, started)
    if there:
        return there
    with lease(store, key):
        there = _found(store, key, started)
        if there:
            return there
        folder, training = make()
        store.create(f"weights/{key}.json", {"folder": folder, "training": training})
    return Weights(key, folder, training, time.time() - started, cached=False)


def _trained(
    store: Store, job: Job, lineage: Mapping[str, Any], workers: int, gpu: bool, progress: Progress
) -> tuple[str, dict[str, Any]]:
    """Name of a new folder, and what its run measured."""
    start()
    trained = fit(job, workers, gpu, progress)
    training = {
        "steps": trained.state.step,
        "batch_rows": job.recipe.batches.rows,
        "rows_per_second": trained.state.rows / max(trained.state.seconds, 1e-9),
        "seconds": trained.state.seconds,
        "peak_share": trained.state.peak_share,
        "workers": workers,
        "taken_up": trained.state.taken_up,
        "precision": job.recipe.training.precision,
        "notes": [*scarce(job.recipe, job.vocabulary), *unfollowed(job.recipe.watch, trained.best_step)],
        "logged_steps": [step for step, _ in trained.state.losses],
        "loss": [loss for _, loss in trained.state.losses],
        "watched": [{"step": step, **figures} for step, figures in trained.state.watched],
        "best_step": trained.best_step,
        "bound": {str(number): list(map(list, told)) for number, told in trained.state.bounds.items()},
    }
    return _keep(store, job, trained.checkpoint, {**lineage, "weights": job.key}), training


def unfollowed(watch: Watch, best_step: int | None) -> list[str]:
    """A warning where a recipe follows a figure that no step gave."""
    if not watch.best or best_step is not None:
        return []
    return [f'watch.best is "{watch.best}", which no step gave: the weights are those of the last step']


def _found(store: Store, key: str, started: float) -> Weights | None:
    """The weights of a key, if they were made."""
    record = store.get(f"weights/{key}.json")
    return Weights(key, record["folder"], record["training"], time.time() - started, cached=True) if record else None


def _keep(store: Store, job: Job, checkpoint: str, lineage: Mapping[str, Any]) -> str:
    """Write the model folder of a checkpoint."""
    method = build(job)
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        near = store.fetch(checkpoint, Path(place))
        whole = torch.load(near / STATE, weights_only=True, map_location="cpu")
        trained = whole["best"]["weights"] if whole["best"] else whole["weights"]
        if all(torch.equal(before, trained[name]) for name, before in method.towers.named_parameters("towers")):
            raise TrainingError("the run ended with the weights it began with; look at training.rate and precision")
        method.load_state_dict(trained)
        written = Path(place) / "model"
        save(written, method.to(torch.float32), job.vocabulary.tokenizer, lineage, card(job, lineage))
        name = f"weights/{job.key}-{uuid4().hex[:8]}"
        store.upload(written, name)
    return name


def _discard(store: Store, job: Job) -> None:
    """
    Remove what only the run needed: checkpoints, its progress, and batches of later epochs, which can be made again.

    The first epoch stays, so that an unchanged corpus makes nothing.
    """
    store.remove(job.run)
    store.delete(f"progress/{job.key}.json")
    for epoch in range(1, job.recipe.training.epochs):
        key = batches.epoch_key(job.plan, epoch)
        piece = store.piece("batches", key)
        if piece:
            store.delete(f"batches/{key}.json")
            store.delete(piece.file)


def card(job: Job, lineage: Mapping[str, Any]) -> str:
    """The model card."""
    recipe = job.recipe
    scaled = ", scaled to length 1" if recipe.readout.normalise else ""
    several = ", one behind the other" if len(recipe.readout.towers) > 1 else ""
    closed = "; one without a closing mark gets a full stop" if recipe.readout.stop else ""
    return f"""# {recipe.name}

A text-embedding model, trained by Firth on {lineage.get("corpus", "?")} on {datetime.now(UTC):%Y-%m-%d}.

- Method: {recipe.source or recipe.name}
- Encoder: {recipe.encoder.kind}, towers {", ".join(recipe.encoder.towers)}
- A text's vector: that of tower {", ".join(recipe.readout.towers)}{several}{scaled}
- Sentences longer than {recipe.tokenizer.most_tokens} tokens are cut{closed}
- Seed {recipe.training.seed}; `recipe.json` has every other number, `lineage.json` says which data it saw

```python
from models.folder import load
vectors = load("this folder").encode(["a text", "another"])
```
{usage(recipe, job.vocabulary.tokenizer)}"""
