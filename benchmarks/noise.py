"""
Tokens per second of each noise on one core, and of all of them together.

    OMP_NUM_THREADS=1 POLARS_MAX_THREADS=1 python benchmarks/noise.py [--rows 100000] [--tokens 16] [--runs 5]

Rows are made up: lengths by Poisson, words drawn from a vocabulary of 30,000 of which a quarter goes on with the word
before it, and a full stop at every eighth token. Medians of several runs, interleaved; tokens that go in are counted.
"""

import argparse
import statistics
import time
from collections import defaultdict

import numpy as np
import polars as pl

from pipeline.augment import repeat
from pipeline.lexicon import Lexicon
from pipeline.noise import noise
from pipeline.ragged import Ragged, offsets

WORDS, MASK, STOP = 30_000, 4, 5
NOTHING = dict.fromkeys(["whole_words", "masking", "deletion", "infilling", "permutation", "rotation"], 0.0)
NOISES = {
    "none": {},
    "whole_words": {"whole_words": 0.15},
    "masking": {"masking": 0.15},
    "deletion": {"deletion": 0.15},
    "infilling": {"infilling": 0.3},
    "permutation": {"permutation": 1.0},
    "rotation": {"rotation": 1.0},
    "infilling and permutation": {"infilling": 0.3, "permutation": 1.0},
    "all": {"masking": 0.15, "deletion": 0.15, "infilling": 0.3, "permutation": 1.0, "rotation": 0.5},
}


def lexicon() -> Lexicon:
    """Numbers below 5 are special, 5 is the full stop, the last quarter goes on with a word."""
    number_V = np.arange(WORDS)
    return Lexicon(number_V >= WORDS * 3 // 4, number_V < STOP, number_V == STOP, number_V[STOP:], MASK)


def rows(count: int, tokens: int) -> pl.Series:
    """So many rows of so many tokens on average."""
    draw = np.random.default_rng(0)
    offset_R = offsets(np.maximum(1, draw.poisson(tokens, count)))
    flat_T = draw.integers(STOP + 1, WORDS, size=offset_R[-1], dtype=np.int32)
    flat_T[draw.random(len(flat_T)) < 1 / 8] = STOP
    return Ragged(flat_T, offset_R).series()


def main() -> None:
    """Measure, and print a line a noise."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    column, words, seconds = rows(chosen.rows, chosen.tokens), lexicon(), defaultdict(list)
    for run in range(chosen.runs + 1):
        for name, rates in [*NOISES.items(), ("repeat", None)]:
            started = time.perf_counter()
            draw = np.random.default_rng(run)
            repeat(column, draw, None) if rates is None else noise(
                column, draw, words, **NOTHING | {"chance": 1.0} | rates
            )
            seconds[name] += [time.perf_counter() - started] if run else []  # the first one warms up
    tokens = int(column.list.len().sum())
    print(f"{len(column):,} rows, {tokens:,} tokens")
    for name, taken in seconds.items():
        print(f"{name:26} {tokens / statistics.median(taken) / 1e6:6.1f} million tokens a second")


if __name__ == "__main__":
    main()
