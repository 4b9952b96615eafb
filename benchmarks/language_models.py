"""
Language models by noise: perplexity and log Z against the number and kind of noise words, beside the full softmax and
counting.

    python benchmarks/language_models.py --data FOLDER --store FOLDER [--seeds 3] [--table]

FOLDER holds wikitext2-valid-test. All models are trained on its valid.txt and share one vocabulary (lower case, words
cut at punctuation); figures are of all of test.txt, sentence ends included. What the store holds is not done again.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retrained import arguments, results, retrained, table

SEEDS = (0, 1, 2)
EPOCHS = 5
SHARED = (
    *("corpus.name=wikitext", "corpus.lines=true", "corpus.held_out=0"),
    'tokenizer={kind="word-level", size=20000, lowercase=true, most_tokens=200}',
)


@dataclass(frozen=True)
class Run:
    """A line of the table: a recipe and what is changed in it."""

    name: str
    recipe: str
    settings: tuple[str, ...] = ()


def noise(count: int, power: float) -> tuple[str, ...]:
    """So many noise words, drawn by their number to a power: 1 as they stand in the corpus, 0 evenly."""
    return (f"terms.0.candidates.count={count}", f"terms.0.candidates.power={power}")


RUNS = (
    *(
        Run(f"ngram, order {n}, {how}", "ngram", (f"encoder.order={n}", f"encoder.smoothing={how}"))
        for n in (1, 3, 5)
        for how in ("backoff", "interpolated")
    ),
    Run("nplm, full softmax", "nplm"),
    *(
        Run(f"nce, {kind}, k = {k}", "nce", noise(k, power))
        for kind, power in (("unigram", 1.0), ("uniform", 0.0))
        for k in (1, 5, 25, 100)
    ),
    Run("nce, unigram, k = 25, a global log Z", "nce", ("terms.0.objective.log_z=global",)),
    Run("nce, unigram, k = 25, shared by a batch", "nce", ("terms.0.candidates.shared=true",)),
    Run("nce-log-bilinear, unigram, k = 25", "nce-log-bilinear"),
)
COLUMNS = ("normalised", "as_trained", "log_z_mean", "log_z_spread")


def main() -> None:
    """Make all runs; or print what there is."""
    options = arguments(str(__doc__), ".firth-words").parse_args()
    place, data = options.store / "language-models", options.data / "wikitext2-valid-test"
    place.mkdir(parents=True, exist_ok=True)
    evaluation = f'evaluation=[{{kind="perplexity", path="{data / "test.txt"}", name="test"}}]'
    for seed in () if options.table else SEEDS[: options.seeds]:
        for run in RUNS:
            if options.only in run.name and not (seed and run.recipe == "ngram"):
                epochs = () if run.recipe == "ngram" else (f"training.epochs={EPOCHS}",)
                chosen = [*SHARED, *epochs, evaluation, *run.settings]
                retrained(place, run.name, seed, run.recipe, data / "valid.txt", options.store, chosen)
    print(all_runs(place))


def all_runs(place: Path) -> str:
    """The table of all runs there are."""
    found: dict[str, list[dict[str, float]]] = {run.name: [] for run in RUNS}
    for result in results(place):
        found[result["name"]].append(figures(result))
    columns = (*COLUMNS, "milliseconds a step")
    return table({name: runs for name, runs in found.items() if runs}, columns, digits=2)


def figures(result: dict[str, Any]) -> dict[str, float]:
    """What the table shows of a run."""
    scores, training = result["scores"], result["training"]
    names = {name: f"perplexity.test.{name}" for name in COLUMNS}
    found = {name: scores[key] for name, key in names.items() if key in scores}
    return found | ({"milliseconds a step": 1e3 * training["seconds"] / training["steps"]} if training["steps"] else {})


if __name__ == "__main__":
    main()
