"""
A training step on pairs of sentences, beside sentence-transformers doing the same work in turns.

    python benchmarks/pair_speed.py --model FOLDER [--text FILE.parquet] [--pairs 64] [--tokens 64] [--rounds 5]

Both start from the same encoder (mean pooling, its own dropout), see the same pairs of neighbouring sentences in the
same batches, and use in-batch softmax over cosines at temperature 0.05, AdamW, and as many threads. Theirs runs in
float32, its default, and in bf16 by autocast; neither is timed while it turns text into numbers. Prints pairs a second
of each round, the medians, and their ratios.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import cycle
from pathlib import Path
from typing import Any

import polars as pl
import sentencex
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from tokenizers import Tokenizer
from torch import nn

from models.batch import Batch
from models.candidates import Rows
from models.encoding import Setup
from models.gathering import World
from models.method import Method
from models.optimizer import optimizer
from models.recipe import load
from models.reduction import trainable
from models.resolving import resolve
from models.step import step_gradient

Step = Callable[[], float]
RATE = 2e-5
SPECIAL = 2  # first and last word, of the tokens that fit


def main() -> None:
    """Measure, in turns."""
    options = arguments()
    torch.set_num_threads(options.threads)
    texts = neighbours(options.text, 20 * options.pairs)
    batches = [texts[start : start + options.pairs] for start in range(0, len(texts), options.pairs)]
    steps = {
        "firth, bf16": firth(options, batches, "bf16"),
        "firth, fp32": firth(options, batches, "fp32"),
        "sentence-transformers, default": theirs(options, batches, bf16=False),
        "sentence-transformers, bf16": theirs(options, batches, bf16=True),
    }
    rates: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()  # warm up
    for _ in range(options.rounds):
        for name, step in steps.items():
            started = time.perf_counter()
            for _ in range(options.steps):
                step()
            rates[name].append(options.steps * options.pairs / (time.perf_counter() - started))
    show(rates)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="folder of a BERT that transformers reads")
    parser.add_argument(
        "--text", type=Path, default=Path("../shared/data/standardebooks/paragraphs.parquet"), help="paragraphs, `text`"
    )
    parser.add_argument("--pairs", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--lane", type=int, default=32, help="rows that Firth encodes together")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="of each in a round")
    return parser.parse_args()


def neighbours(path: Path, count: int) -> list[tuple[str, str]]:
    """Pairs of sentences that follow each other, from paragraphs drawn over the whole file."""
    paragraphs = pl.read_parquet(path, columns=["text"])["text"].sample(fraction=1, shuffle=True, seed=0)
    pairs: list[tuple[str, str]] = []
    for text in paragraphs:
        cut = [sentence.strip() for sentence in sentencex.segment("en", text) if sentence.strip()]
        pairs += list(zip(cut[::2], cut[1::2], strict=False))[:1]
        if len(pairs) >= count:
            break
    return pairs[:count]


def firth(options: argparse.Namespace, batches: list[list[tuple[str, str]]], precision: str) -> Step:
    """Firth's own step, as a training run takes it."""
    changes = [f"encoder.path={options.model}", "encoder.pooling=mean", "encoder.head=none", "pairs.kind=pairs"]
    recipe = resolve(load("simcse-unsup", [*changes, f"training.rate={RATE}", f"batches.rows={2 * options.pairs}"]))
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(options.tokens - SPECIAL)
    method = Method(recipe, tokenizer.get_vocab_size(), tokenizer=tokenizer).train()
    moved = optimizer(list(trainable(method)), recipe.training)
    read = cycle([batch(pairs, tokenizer) for pairs in batches])
    numbers, setup = iter(range(10**9)), Setup(0, options.lane, precision)

    def step() -> float:
        loss = step_gradient(method, next(read), next(numbers), setup, World())
        moved.step()
        return loss

    return step


def batch(pairs: list[tuple[str, str]], tokenizer: Tokenizer) -> Batch:
    """Rows side by side, as the batches table has them."""
    texts = [text for pair in pairs for text in pair]
    ids = [entry.ids or [0] for entry in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
    row_B = torch.arange(len(ids))
    rows = Rows(torch.zeros(len(ids), dtype=torch.uint8), row_B, (row_B ^ 1)[:, None], (row_B % 2).to(torch.uint8))
    return Batch(torch.tensor([token for row in ids for token in row]), torch.tensor([len(row) for row in ids]), rows)


def theirs(options: argparse.Namespace, batches: list[list[tuple[str, str]]], bf16: bool) -> Step:
    """The library's model and loss in a plain loop: its trainer's own work is left out."""
    model = SentenceTransformer(str(options.model), device="cpu").train()
    model.max_seq_length = options.tokens
    loss_of: nn.Module = MultipleNegativesRankingLoss(model, scale=20.0)
    moved = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    read: Iterator[Any] = cycle(
        [[model.preprocess(list(side)) for side in zip(*pairs, strict=True)] for pairs in batches]
    )

    def step() -> float:
        moved.zero_grad()
        features = [{name: value for name, value in side.items()} for side in next(read)]
        with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
            loss = loss_of(features, torch.arange(options.pairs))
        loss.backward()
        moved.step()
        return float(loss.detach())

    return step


def show(rates: dict[str, list[float]]) -> None:
    """Each round, the medians, and how many times theirs ours is."""
    print(
        f"| pairs a second | {' | '.join(f'round {n + 1}' for n in range(len(next(iter(rates.values())))))} | median |"
    )
    print("|---" * (len(next(iter(rates.values()))) + 2) + "|")
    for name, values in rates.items():
        print(f"| {name} | {' | '.join(f'{value:.1f}' for value in values)} | {statistics.median(values):.1f} |")
    for name in list(rates)[2:]:
        ratios = [ours / other for ours, other in zip(rates["firth, bf16"], rates[name], strict=True)]
        print(f"firth, bf16, is {statistics.median(ratios):.1f} times {name} ({min(ratios):.1f} to {max(ratios):.1f})")


if __name__ == "__main__":
    main()
