"""
Sentence similarity from nothing: a small BERT trained on masked words, then each recipe of the SimCSE family from it.

    python benchmarks/similarity.py --data FOLDER --store FOLDER [--steps 200] [--only consert] [--table]

FOLDER of the data holds standardebooks, movie-reviews, brown, snli-dev, stsb and sts12-16. Every run is a `firth
retrain`; what the store holds is not done again, so a killed script goes on where it was. Figures lie in one JSON file
a run under STORE/similarity; --table prints them all.
"""

import argparse
import json
import shutil
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
from retrained import arguments, results, retrained, table

from models.folder import load
from pipeline.evaluations.sts import sts

BASE_STEPS = 3_000  # 33 minutes of two processors with nothing else to do
RATES = {"promptbert": 3e-5, "simcse-sup": 1e-4, "promptbert-sup": 1e-4}  # chosen on STS-B dev with one seed, of
RATE = 1e-5  # 3e-6 to 1e-4; this of all others
SEEDS = (0, 1, 2)
SETS = ("stsb-dev", "stsb-test", "sts12", "sts13", "sts14", "sts15", "sts16")


@dataclass(frozen=True)
class Run:
    """One line of the table: a recipe and what is changed in it."""

    name: str
    recipe: str
    settings: tuple[str, ...] = ()
    labelled: bool = False


UNSUPERVISED = (
    Run("simcse-unsup", "simcse-unsup"),
    Run("esimcse", "esimcse"),
    Run("consert", "consert"),
    Run("promptbert", "promptbert", ("batches.rows=128",)),
    Run("esimcse-prompt", "esimcse-prompt"),
    Run("consert-mlm", "consert-mlm"),
)
SUPERVISED = (
    Run("simcse-sup", "simcse-sup", ("batches.rows=384", "training.epochs=40"), labelled=True),
    Run("promptbert-sup", "promptbert-sup", ("batches.rows=384", "training.epochs=40"), labelled=True),
)
SHORT = "tokenizer.most_tokens=30"  # half the published length of ConSERT, for a third of the time
CLAIMS = (  # one thing changed each
    Run("consert at 30 tokens, feature cutoff and shuffle", "consert", (SHORT,)),
    Run("consert at 30 tokens, shuffle", "consert", (SHORT, 'view=[{kind="shuffle"},{kind="none"}]')),
    Run("consert at 30 tokens, token cutoff", "consert", (SHORT, 'view=[{kind="token-cutoff"},{kind="none"}]')),
    Run("consert at 30 tokens, feature cutoff", "consert", (SHORT, 'view=[{kind="feature-cutoff"},{kind="none"}]')),
    Run("consert at 30 tokens, dropout", "consert", (SHORT, 'view=[{kind="dropout"},{kind="none"}]')),
    Run("consert at 30 tokens, none", "consert", (SHORT, "view=[]")),
    Run("esimcse, no queue", "esimcse", ("terms.0.candidates.queue=0",)),
    Run("esimcse, queue 640", "esimcse", ("terms.0.candidates.queue=640",)),
    Run("esimcse, no repetition", "esimcse", ("augment=[]",)),
    Run("simcse-unsup, batch 16", "simcse-unsup", ("batches.rows=32",)),
    Run("promptbert, no denoising", "promptbert", ("batches.rows=128", "view.0.delta=none", "view.1.delta=none")),
)


def main() -> None:
    """Make the data, the base, and all runs; or print what there is."""
    options = command_line()
    place = options.store / "similarity"
    place.mkdir(parents=True, exist_ok=True)
    if not options.table:
        make_data(options.data, place)
        base = trained_base(options, place)
        for runs in ((*UNSUPERVISED, *SUPERVISED), CLAIMS):
            for seed, run in product(SEEDS[: options.seeds], runs):
                if options.only in run.name:
                    one(options, place, run, seed, base)
    print(all_runs(place))


def command_line() -> argparse.Namespace:
    """What is asked for."""
    parser = arguments(str(__doc__), ".firth-similarity")
    parser.add_argument("--base-steps", type=int, default=BASE_STEPS, help="steps of the base")
    parser.add_argument("--steps", type=int, default=200, help="steps of each run, 128 rows or more")
    parser.add_argument("--workers", type=int, default=1)
    return parser.parse_args()


def make_data(data: Path, place: Path) -> None:
    """One corpus of running text, one of rated premises, and the rated pairs, as files with headers."""
    if (place / "made").exists():
        return
    books = pl.read_parquet(data / "standardebooks/paragraphs.parquet").select(
        document=pl.concat_str(pl.lit("book"), "book", "chapter", separator="/"), place="paragraph", text="text"
    )
    reviews = pl.read_parquet(data / "movie-reviews/sentences.parquet").select(
        document=pl.concat_str(pl.lit("review"), "label", "doc", separator="/"), place="line", text="text"
    )
    brown = pl.read_parquet(data / "brown/sentences.parquet").select(
        document=pl.concat_str(pl.lit("brown"), "doc", separator="/"), place="sentence", text="text"
    )
    plain = [frame.with_columns(pl.col("place").cast(pl.Int64)) for frame in (books, reviews, brown)]
    pl.concat(plain).write_parquet(place / "text.parquet")
    lines = lambda path: path.read_text(encoding="utf-8").split("\n")[:-1]
    names = {"premise": "s1.dev", "hypothesis": "s2.dev", "label": "labels.dev"}
    write(place / "nli.tsv", {column: lines(data / "snli-dev" / file) for column, file in names.items()})
    for part in ("dev", "test"):
        rows = [line.split("\t") for line in lines(data / f"stsb/sts-{part}.csv")]
        columns = {name: [row[at] for row in rows] for name, at in (("score", 4), ("sentence1", 5), ("sentence2", 6))}
        write(place / f"stsb-{part}.tsv", columns)
    for year in range(12, 17):
        write(place / f"sts{year}.tsv", rated(data / f"sts12-16/STS{year}-en-test"))
    (place / "made").touch()


def rated(folder: Path) -> dict[str, list[str]]:
    """All subsets of one year; pairs without a score are left out."""
    columns: dict[str, list[str]] = {"score": [], "sentence1": [], "sentence2": []}
    for given in sorted(folder.rglob("STS.input.*.txt")):
        gold = given.with_name(given.name.replace("STS.input", "STS.gs")).read_text(encoding="utf-8").split("\n")
        for score, line in zip(gold, given.read_text(encoding="utf-8").split("\n"), strict=False):
            if score.strip() and line:
                left, right, *_ = line.split("\t")
                for name, value in zip(columns, (score.strip(), left, right), strict=True):
                    columns[name].append(value)
    return columns


def write(path: Path, columns: dict[str, list[str]]) -> None:
    """A table with tabs, and no quotes."""
    pl.DataFrame(columns).write_csv(path, separator="\t", quote_style="never")


def evaluations(place: Path, sets: Iterable[str]) -> str:
    """Rated sets, as a setting."""
    entries = ", ".join(f'{{kind="sts", path="{place / name}.tsv"}}' for name in sets)
    return f"evaluation=[{entries}]"


def trained_base(options: argparse.Namespace, place: Path) -> str:
    """The model folder of the base; its own scores by two poolings."""
    settings = [*text_corpus(), f"training.steps={options.base_steps}", "training.epochs=20"]
    first = retrain(options, place, "base, mean", "mlm", place / "text.parquet", settings)
    for name, pooling in (("mean of the last two", "mean-last-two"), ("first token", "first")):
        other = place / f"base-{pooling}-0.json"
        if not other.exists():
            result = {"name": f"base, {name}", "seed": 0, "settings": settings, "training": first["training"]}
            result["scores"] = read_otherwise(place, Path(first["model_folder"]), pooling)
            other.write_text(json.dumps(result, indent=1), encoding="utf-8")
    return str(first["model_folder"])


def read_otherwise(place: Path, folder: Path, pooling: str) -> dict[str, float]:
    """The scores of a model by another pooling; nothing is trained for it."""
    other = place / f"base-{pooling}"
    shutil.copytree(folder, other, dirs_exist_ok=True)
    recipe = json.loads((other / "recipe.json").read_text(encoding="utf-8"))
    recipe["readout"]["pooling"] = pooling
    (other / "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
    model, found = load(other), dict[str, float]()
    for name in SETS:
        found |= sts(model, pl.DataFrame(), path=str(place / f"{name}.tsv")).flat()
    return found


def one(options: argparse.Namespace, place: Path, run: Run, seed: int, base: str) -> None:
    """A run of the table with one seed."""
    shared = [f"encoder.path={base}", f"training.steps={options.steps}", *run.settings]
    shared.append(f"training.rate={RATES.get(run.recipe, RATE)}")
    shared.append("training.warmup=0.1")
    shared += [] if run in CLAIMS else [watch(place, options.steps)]
    if run.labelled:
        given = ['corpus.texts=["premise","hypothesis"]', "corpus.label=label", "corpus.held_out=0"]
        retrain(options, place, run.name, run.recipe, place / "nli.tsv", [*shared, *given], seed)
    else:
        retrain(options, place, run.name, run.recipe, place / "text.parquet", [*shared, *text_corpus()], seed)


def watch(place: Path, steps: int) -> str:
    """STS-B dev four times a run, whose best step is kept, as Gao, Yao and Chen 2021 do."""
    dev = f'{{kind="sts", path="{place / "stsb-dev.tsv"}"}}'
    return f'watch={{steps={max(1, steps // 4)}, evaluation=[{dev}], best="sts.stsb-dev.spearman"}}'


def text_corpus() -> list[str]:
    """How the running text is read."""
    return ["corpus.name=similarity", "corpus.document=document", "corpus.order=place", "corpus.held_out=0.02"]


def retrain(
    options: argparse.Namespace, place: Path, name: str, recipe: str, corpus: Path, settings: list[str], seed: int = 0
) -> dict[str, Any]:
    """One `firth retrain`, or its result if it is there."""
    claim = name in {run.name for run in CLAIMS}  # what a claim asks is asked of one set, and of the last step
    whole = [*settings, evaluations(place, SETS[:1] if claim else SETS)]
    return retrained(place, name, seed, recipe, corpus, options.store, whole, workers=options.workers)


def figures(result: dict[str, Any]) -> dict[str, float]:
    """
    The figures of a run that the table shows.

    Scores are those of the step that was best on STS-B dev; what is called `last` is measured at the end, where runs
    that differ in one thing have all taken equally many steps.
    """
    scores, training = result["scores"], result["training"]
    found = {name: scores[f"sts.{name}.spearman"] for name in SETS if f"sts.{name}.spearman" in scores}
    years = [found[f"sts{year}"] for year in range(12, 17) if f"sts{year}" in found]
    found |= {"sts12-16": statistics.mean(years)} if years else {}
    last = (training.get("watched") or [scores])[-1]
    found |= {f"last {name}": last[f"sts.stsb-dev.{name}"] for name in ("spearman", "length_bias", "random_cosine")}
    found["last loss"] = statistics.mean(training["loss"][-3:])
    if "0" in training.get("bound", {}):
        found["last log N - L"] = statistics.mean(value for _, value in training["bound"]["0"][-3:])
    found["best step"] = float(training.get("best_step") or training["steps"])
    return found


def all_runs(place: Path) -> str:
    """The table of all runs there are."""
    runs: dict[str, list[dict[str, float]]] = {}
    for result in results(place):
        runs.setdefault(result["name"], []).append(figures(result))
    order = [run.name for run in (*UNSUPERVISED, *SUPERVISED, *CLAIMS)]
    runs = dict(sorted(runs.items(), key=lambda item: order.index(item[0]) if item[0] in order else -1))
    best = ("stsb-dev", "stsb-test", "sts12-16", "best step")
    last = ("last spearman", "last length_bias", "last random_cosine", "last loss", "last log N - L")
    return table(runs, (*best, *last), digits=2)


if __name__ == "__main__":
    main()
