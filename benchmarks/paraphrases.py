"""
Pairs that mean the same, in English and Chinese: SimBERT and both stages of RoFormer-Sim from small bases of one's own.

    python benchmarks/paraphrases.py --data FOLDER --store FOLDER [--only chinese] [--seeds 3] [--table]

FOLDER of the data holds what `similarity.py` asks for, mrpc, chinese-classics and chinese-sts. English pairs are MRPC's
paraphrases and the entailments of SNLI's development part, Chinese ones LCQMC's; a fifth of them, by the digest
of the first text, is asked for alone, and no text of that fifth is trained on. Each language has two bases trained on
masked words, one with learned positions for SimBERT and one with rotary ones for RoFormer-Sim. Every run is a `firth
retrain`; what the store holds is not done again.
"""

import argparse
import hashlib
import json
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from retrained import arguments, results, retrained, table
from similarity import make_data, text_corpus, write

from models.folder import load
from models.generation import matched_and_told, told
from models.model import Model
from models.transformer import Transformer
from pipeline.evaluations.sts import sts

SEEDS = (0, 1, 2)
HELD = 0.2
LANGUAGES = {"english": "en", "chinese": "zh"}
BASES = {"english bert": 3_000, "english roformer": 1_000, "chinese bert": 1_000, "chinese roformer": 1_000}  # steps
EPOCHS = {"english": 2, "chinese": 3}
STEPS = 100  # of the second stage
RATE = 1e-4  # of all runs, where the released code trains a larger model at 2e-6 and 1e-5
COLUMNS = ("sts-b dev", "mrr", "cosine", "random cosine", "nats a word")
ROWS = 64


@dataclass(frozen=True)
class Run:
    """A line of the table: a recipe, the base that it goes on from, and what is changed."""

    name: str
    recipe: str
    base: str
    settings: tuple[str, ...] = ()


FIRST = (
    Run("simbert", "simbert", "bert"),
    Run("roformer-sim-1", "roformer-sim-1", "roformer"),
    Run("roformer-sim-1 without noise", "roformer-sim-1", "roformer", ("augment=[]",)),
)


def main() -> None:
    """Make the data, the bases and all runs; or print what there is."""
    options = arguments(str(__doc__), ".firth-paraphrases").parse_args()
    place = options.store / "paraphrases"
    place.mkdir(parents=True, exist_ok=True)
    if not options.table:
        make_texts(options, place)
        languages = [name for name in LANGUAGES if options.only in name]
        bases = {name: base(options, place, name) for name in BASES if name.split()[0] in languages}
        for seed, language in product(SEEDS[: options.seeds], languages):
            runs(options, place, language, seed, bases)
    found: dict[str, list[dict[str, float]]] = {}
    for result in results(place):
        found.setdefault(result["name"], []).append(figures(place, result, as_trained=True))
        if result["name"].endswith("base"):
            found.setdefault(f"{result['name']}, first token", []).append(figures(place, result, as_trained=False))
    print(table(found, COLUMNS))


def runs(options: argparse.Namespace, place: Path, language: str, seed: int, bases: dict[str, str]) -> None:
    """A language's runs of one seed, the second stage from the first and under SimBERT."""
    folders = {}
    for run in FIRST:
        start = [f"encoder.path={bases[f'{language} {run.base}']}", f"training.epochs={EPOCHS[language]}"]
        folders[run.name] = paired(options, place, language, seed, run, start)
    first, teacher = folders["roformer-sim-1"], folders["simbert"]
    start = [f"encoder.path={first}", f"training.start={first}", f"teacher.model={teacher}", f"training.steps={STEPS}"]
    paired(options, place, language, seed, Run("roformer-sim-2", "roformer-sim-2", "roformer"), start)


def paired(options: argparse.Namespace, place: Path, language: str, seed: int, run: Run, start: list[str]) -> str:
    """One run over a language's pairs; its model folder."""
    settings = [*start, f"training.rate={RATE}", 'corpus.texts=["left","right"]', "corpus.held_out=0"]
    settings += ["tokenizer.most_tokens=30", f"corpus.language={LANGUAGES[language]}"]
    settings += [*run.settings, f'evaluation=[{{kind="sts", path="{place}/{language}-stsb-dev.tsv"}}]']
    corpus = place / f"{language}-pairs.tsv"
    result = retrained(
        place, f"{language}, {run.name}", seed, run.recipe, corpus, options.store, settings, language=language
    )
    return str(result["model_folder"])


def base(options: argparse.Namespace, place: Path, name: str) -> str:
    """The model folder of a base."""
    language, kind = name.split()
    settings = [*text_corpus(), f"training.steps={BASES[name]}", "training.epochs=20"]
    corpus = options.store / "similarity/text.parquet"
    if language == "chinese":
        settings[0] = "corpus.name=paraphrases-chinese"
        settings.append("corpus.language=zh")
        corpus = place / "chinese-text.parquet"
    settings += ["encoder.rotary=true"] if kind == "roformer" else []
    result = retrained(place, f"{name} base", 0, "mlm", corpus, options.store, settings, language=language)
    return str(result["model_folder"])


def make_texts(options: argparse.Namespace, place: Path) -> None:
    """The texts of both bases, and pairs to train on and to ask for, as files with headers."""
    (options.store / "similarity").mkdir(exist_ok=True)
    make_data(options.data, options.store / "similarity")
    if (place / "made").exists():
        return
    lines = lambda name: (options.data / name).read_text(encoding="utf-8-sig").split("\n")[:-1]
    mrpc = [line.split("\t") for part in ("train", "test") for line in lines(f"mrpc/msr_paraphrase_{part}.txt")[1:]]
    snli = zip(lines("snli-dev/labels.dev"), lines("snli-dev/s1.dev"), lines("snli-dev/s2.dev"), strict=True)
    english = [(row[3], row[4]) for row in mrpc if row[0] == "1"]
    english += [(left, right) for label, left, right in snli if label == "entailment"]
    lcqmc = [line.split("\t") for line in lines("chinese-sts/LCQMC/dev.txt")]
    seen = split(place, "english", english) | split(place, "chinese", [(a, b) for a, b, label in lcqmc if label == "1"])
    parts = ("train", "dev")
    train, dev = ([row.split("\t") for row in lines(f"chinese-sts/Chinese-STS-B/sts-b-{part}.txt")] for part in parts)
    places = {"score": 2, "sentence1": 0, "sentence2": 1}
    write(place / "chinese-stsb-dev.tsv", {name: [row[at] for row in dev] for name, at in places.items()})
    (place / "english-stsb-dev.tsv").write_bytes((options.store / "similarity/stsb-dev.tsv").read_bytes())
    modern = [text for row in (*train, *lcqmc) for text in row[:2]]
    chinese(options.data, [text for text in dict.fromkeys(modern) if text not in seen]).write_parquet(
        place / "chinese-text.parquet"
    )
    (place / "made").touch()


def chinese(data: Path, modern: list[str]) -> pl.DataFrame:
    """Classics by book and paragraph, and modern sentences, a hundred a document."""
    classics = pl.read_parquet(data / "chinese-classics/paragraphs.parquet")
    books = classics.select(document="book", place=pl.col("paragraph").cast(pl.Int64), text="text")
    row = pl.int_range(pl.len())
    single = pl.DataFrame({"text": modern}).with_columns(document=pl.format("modern {}", row // 100), place=row)
    return pl.concat([books, single.select("document", "place", "text")])


def split(place: Path, language: str, pairs: list[tuple[str, str]]) -> set[str]:
    """Write a language's pairs, to train on and to ask for; the texts of the latter."""
    pairs = [(left.strip(), right.strip()) for left, right in pairs]
    digest = lambda text: int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) / 2**32
    held = [pair for pair in pairs if digest(pair[0]) < HELD]
    seen = {text for pair in held for text in pair}
    left = [pair for pair in pairs if not seen & set(pair)]
    for name, chosen in (("pairs", left), ("held", held)):
        columns = {side: [pair[at] for pair in chosen] for at, side in enumerate(("left", "right"))}
        write(place / f"{language}-{name}.tsv", columns)
    return seen


def figures(place: Path, result: dict[str, Any], *, as_trained: bool) -> dict[str, float]:
    """What the table shows of a run: kept beside its result, by model folder."""
    folder = Path(result["model_folder"])
    kept = place / "figures" / f"{folder.parent.name}-{folder.name}-{'own' if as_trained else 'first'}.json"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(json.dumps(measured(place, result["language"], folder, as_trained)), encoding="utf-8")
    return dict(json.loads(kept.read_text(encoding="utf-8")))


def measured(place: Path, language: str, folder: Path, as_trained: bool) -> dict[str, float]:
    """Similarity of the pairs held out, what their second texts cost to tell, and Spearman on STS-B dev."""
    model = load(folder)
    encoder = model.method.tower(model.recipe.encoder.towers[0])
    assert isinstance(encoder, Transformer)
    if not as_trained:
        encoder.pooling = "first"
    path = str(place / f"{language}-stsb-dev.tsv")
    rated = sts(model, pl.DataFrame(), path=path).flat()[f"sts.{language}-stsb-dev.spearman"]
    held = pl.read_csv(place / f"{language}-held.tsv", separator="\t", quote_char=None)
    pairs = list(held.unique(maintain_order=True).filter(pl.col("left") != pl.col("right")).iter_rows())
    return {"sts-b dev": rated, "nats a word": cost(model, encoder, pairs)} | found(model, pairs)


def found(model: Model, pairs: list[tuple[str, str]]) -> dict[str, float]:
    """
    Whether a first text finds its second one among all texts but itself and its other answers, by cosine; the mean
    reciprocal rank, and the mean cosine of pairs and of first texts with the answers of the next one.
    """
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    row = {text: number for number, text in enumerate(texts)}
    vector_ND = model.encode(texts)
    vector_ND /= np.linalg.norm(vector_ND, axis=1, keepdims=True)
    answers: dict[int, set[int]] = {}
    for left, right in pairs:
        answers.setdefault(row[left], set()).add(row[right])
    ranks, cosines = [], []
    for asked, rows in answers.items():
        cosine_N = vector_ND @ vector_ND[asked]
        others_N = np.ones(len(texts), dtype=bool)
        others_N[[asked, *rows]] = False
        for one in rows:
            ranks.append(1 + int((cosine_N[others_N] >= cosine_N[one]).sum()))
            cosines.append(float(cosine_N[one]))
    first_PD, second_PD = (vector_ND[[row[pair[side]] for pair in pairs]] for side in (0, 1))
    unlike = float((first_PD * np.roll(second_PD, 1, axis=0)).sum(axis=1).mean())
    return {"mrr": float(np.mean(1 / np.array(ranks))), "cosine": float(np.mean(cosines)), "random cosine": unlike}


@torch.inference_mode()
def cost(model: Model, encoder: Transformer, pairs: list[tuple[str, str]]) -> float:
    """Nats that a word of the second texts takes, given the first ones; the special word at the end is one."""
    total, words = 0.0, 0
    for batch in (pairs[first : first + ROWS] for first in range(0, len(pairs), ROWS)):
        (ids, length_L), (answer_LU, answer_L) = (padded(model, [pair[side] for pair in batch]) for side in (0, 1))
        total += float(matched_and_told(encoder, ids, length_L, answer_LU, answer_L)[1])
        words += told(encoder, length_L, answer_L)
    return total / words


def padded(model: Model, texts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Vocabulary numbers [L, T] and how many."""
    ids = [entry.ids for entry in model.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    length_L = torch.tensor([len(one) for one in ids])
    rows = [torch.tensor(one) for one in ids]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), length_L


if __name__ == "__main__":
    main()
