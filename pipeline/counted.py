"""The `weights` stage of a recipe that counts: its result is a model folder all the same, one a key."""

import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from models.folder import COUNTS, save
from models.method import Method
from models.recipe import Recipe, digest
from pipeline import ngrams
from pipeline.cluster import scratch
from pipeline.manifest import Manifest
from pipeline.store import Store
from pipeline.vocabulary import Vocabulary
from pipeline.weights import Weights, once

COUNTED_VERSION = 1


def model(
    store: Store, recipe: Recipe, vocabulary: Vocabulary, counts: Manifest, lineage: Mapping[str, Any]
) -> Weights:
    """The model folder of some counts: the one that exists, or a new one. One run makes a key, others wait for it."""
    key = digest("counted", COUNTED_VERSION, recipe.encoder, vocabulary.digest, counts.key)
    return once(store, key, partial(_made, store, recipe, vocabulary, counts, {**lineage, "weights": key}))


def _made(
    store: Store, recipe: Recipe, vocabulary: Vocabulary, counts: Manifest, lineage: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Name of a new folder, and what the summary says of training: no step, no loss."""
    started, order = time.time(), int(recipe.encoder.options["order"])
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        written = Path(place) / "model"
        written.mkdir()
        size = ngrams.merge(store, counts, order, recipe.batches.bucket_rows, written / COUNTS)
        method = Method(recipe, vocabulary.size)
        save(written, method, vocabulary.tokenizer, lineage, card(recipe, lineage))
        name = f"weights/{lineage['weights']}-{uuid4().hex[:8]}"
        store.upload(written, name)
    predicted, seconds = counts.count("predicted"), time.time() - started + counts.seconds
    training: dict[str, Any] = {
        "steps": 0,
        "batch_rows": 0,
        "rows_per_second": 0.0,
        "seconds": seconds,
        "peak_share": None,
        "workers": 0,
        "taken_up": [],
        "precision": "",
        "logged_steps": [],
        "loss": [],
        "order": order,
        "ngrams": size,
        "predicted": predicted,
    }
    return name, training


def card(recipe: Recipe, lineage: Mapping[str, Any]) -> str:
    """The model card."""
    options = recipe.encoder.options
    return f"""# {recipe.name}

A language model that counts, made by Firth from {lineage.get("corpus", "?")} on {datetime.now(UTC):%Y-%m-%d}.

- Method: {recipe.source or recipe.name}
- How likely a word is after the {options["order"] - 1} words before it, smoothing {options["smoothing"]}
- Sentences longer than {recipe.tokenizer.most_tokens} tokens are cut
- It has no vectors. `{COUNTS}` is a table of all n-grams, `recipe.json` has every number, `lineage.json` says
  which data it saw

```python
from models.folder import load
scores = load("this folder").token_scores(["a text", "another"])
scores.log_p(), scores.text_N  # of each word and end, in nats, and the text that it stands in
```
"""
