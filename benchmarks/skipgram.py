"""
Word vectors by negative sampling, beside gensim doing the same in turns.

    python benchmarks/skipgram.py --data FOLDER --store FOLDER [--seeds 3] [--threads 1] [--epochs 2]

FOLDER of the data holds standardebooks and stsb. Both train vectors of 100 numbers on the same words (window 5, 5 noise
words, the same threshold for common words) at their own defaults for the rest. Words a second are words of the corpus,
those that are left out counted, over the seconds of training alone: gensim's vocabulary and Firth's tables are made
before. What the vectors are worth is asked of the mean word vectors of STS-B's development part, Spearman times 100.
gensim is no dependency of the project: pip install gensim.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from gensim.models import Word2Vec
from retrained import arguments, spread
from scipy.stats import spearmanr
from tokenizers import Tokenizer

from models.folder import load as opened
from models.model import Model
from models.recipe import load
from models.resolving import resolve
from pipeline.road import Road
from pipeline.store import Store

WIDTH, WINDOW, NOISE, COMMON = 100, 5, 5, 1e-4
CORPUS = ("corpus.name=standardebooks-words", "corpus.document=['book','chapter']", "corpus.order=paragraph")
SETTINGS = (*CORPUS, "corpus.held_out=0", f"encoder.width={WIDTH}", f"encoder.subsample={COMMON}")


def main() -> None:
    """Train both, in turns."""
    parser = arguments(str(__doc__), ".firth-skipgram")
    parser.add_argument("--threads", type=int, default=1, help="workers of both")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--set", action="append", default=[], dest="overrides", help="of Firth's recipe")
    options = parser.parse_args()
    settings = [*SETTINGS, f"training.epochs={options.epochs}", *options.overrides]
    rated = judged(options.data / "stsb" / "sts-dev.csv")
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(options.seeds):
        result = firth(options, settings, seed)
        corpus = sentences(options, settings)
        words = sum(map(len, corpus)) * options.epochs
        model = opened(result["model_folder"])
        note(found, "firth", words / result["training"]["seconds"], worth(rated, model.encode))
        note(found, "gensim", *gensim(corpus, model, rated, options, seed))
    for name, figures in found.items():
        print(name, *(f"{what} {spread(values, 1)}" for what, values in figures.items()), sep=", ")


def firth(options: Any, settings: list[str], seed: int) -> dict[str, Any]:
    """One run of the recipe; of weights that the store holds, the seconds that it keeps."""
    command = [sys.executable, "-m", "flows", "retrain", "skipgram", "--corpus", str(text(options)), "--json"]
    command += ["--store", str(options.store), "--workers", str(options.threads)]
    command += [part for one in (*settings, f"training.seed={seed}") for part in ("--set", one)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def judged(path: Path) -> pl.DataFrame:
    """STS-B's file: score and two sentences in columns 5 to 7, no first line that names them."""
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line]
    columns = {"score": [float(row[4]) for row in rows], "left": [row[5] for row in rows]}
    return pl.DataFrame(columns | {"right": [row[6] for row in rows]})


def text(options: Any) -> Path:
    """The corpus."""
    return Path(options.data / "standardebooks" / "paragraphs.parquet")


def sentences(options: Any, settings: list[str]) -> list[list[str]]:
    """The words that Firth saw, from its store."""
    store = Store.at(options.store)
    road = Road(store, resolve(load("skipgram", settings)), str(text(options)))
    cut = road.sentences(road.documents(road.numbered()))
    vocabulary = road.vocabulary(cut)
    name = {number: word for word, number in Tokenizer.from_str(vocabulary.tokenizer).get_vocab().items()}
    numbers = store.scan(list(road.tokens(cut, vocabulary).pieces.values()), ["tokens"]).collect()["tokens"]
    return [[name[number] for number in row] for row in numbers.to_list()]


def gensim(corpus: list[list[str]], model: Model, rated: pl.DataFrame, options: Any, seed: int) -> tuple[float, float]:
    """Words a second, and what the vectors are worth on the words of Firth's model."""
    words = dict(vector_size=WIDTH, window=WINDOW, negative=NOISE, sample=COMMON, min_count=1, sg=1, seed=seed)
    theirs = Word2Vec(workers=options.threads, epochs=options.epochs, **words)
    theirs.build_vocab(corpus)
    started = time.perf_counter()
    theirs.train(corpus, total_examples=len(corpus), epochs=options.epochs)
    rate = sum(map(len, corpus)) * options.epochs / (time.perf_counter() - started)
    mean = lambda one: np.mean(
        [theirs.wv[word] for word in model.tokenizer.encode(one).tokens if word in theirs.wv], axis=0
    )
    return rate, worth(rated, lambda texts: np.stack([mean(one) for one in texts]))


def worth(rated: pl.DataFrame, encode: Callable[[list[str]], np.ndarray]) -> float:
    """Spearman, times 100, of people's scores with the cosines of some vectors."""
    sides = [encode(rated[side].to_list()) for side in ("left", "right")]
    left_PD, right_PD = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)
    return 100 * float(spearmanr((left_PD * right_PD).sum(axis=1), rated["score"]).statistic)


def note(found: dict[str, dict[str, list[float]]], name: str, rate: float, spearman: float) -> None:
    """Keep and print what a run gave."""
    print(f"{name}: {rate:,.0f} words/s, STS-B dev {spearman:.1f}", flush=True)
    figures = found.setdefault(name, {"words/s": [], "STS-B dev": []})
    figures["words/s"].append(rate)
    figures["STS-B dev"].append(spearman)


if __name__ == "__main__":
    main()
