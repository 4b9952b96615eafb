"""
Sentence similarity: do the cosines of a model's vectors order pairs as people's scores do?

Beside the model stands the overlap of words, which needs no model; further figures tell what the vectors are like.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from pipeline.corpus import group
from pipeline.metrics import (
    alignment,
    bootstrap_spearman,
    cosine,
    effective_rank,
    pearson,
    random_cosine,
    spearman,
    uniformity,
)
from pipeline.neighbours import words
from pipeline.tables import SIMILARITIES

MOST = 20_000  # texts that uniformity compares, each with each
LEAST = 3  # pairs that a rank correlation needs to say anything


@dataclass
class Figures:
    """Figures by name, and why some of them are not there."""

    values: dict[str, float] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def add(self, values: dict[str, float], why: str) -> bool:
        """Take figures if all are numbers, else note why not."""
        known = bool(np.isfinite(list(values.values())).all())
        if known:
            self.values |= values
        else:
            self.missing.append(f"no {', '.join(values)}: {why}")
        return known


def measured(pairs: pl.DataFrame, evaluation: str, texts: list[str], vector_ND: np.ndarray) -> pl.DataFrame:
    """
    Table `similarities`: each pair's gold score, the model's cosine and the words' overlap.

    Args:
        pairs: columns `source`, `row`, `left`, `right`, `gold`.
        evaluation: its name.
        texts: every text of the pairs once.
        vector_ND: their vectors.
    """
    number = {text: at for at, text in enumerate(texts)}
    left_N, right_N = ([number[text] for text in pairs[side]] for side in ("left", "right"))
    counts = [Counter(words(text)) for text in texts]
    sides = list(zip(left_N, right_N, strict=True))
    frame = pairs.select(
        pl.lit(evaluation).alias("evaluation"),
        pl.col("source", "row"),
        group(pairs["left"]).alias("left"),
        group(pairs["right"]).alias("right"),
        pl.col("gold"),
        pl.Series("cosine", cosine(vector_ND[left_N], vector_ND[right_N])),
        pl.Series("overlap", [overlap(counts[i], counts[j]) for i, j in sides], dtype=pl.Float64),
        pl.Series("longer", [abs(counts[i].total() - counts[j].total()) for i, j in sides], dtype=pl.UInt32),
    )
    return SIMILARITIES.check(frame)


def overlap(left: Counter[str], right: Counter[str]) -> float:
    """Cosine of two texts' word counts; words as BM25 compares them, see `neighbours.words`. 0 for a text without."""
    dot = sum(times * right[word] for word, times in left.items())
    square = sum(n * n for n in left.values()) * sum(n * n for n in right.values())
    return round(dot / square**0.5, 10) if square else 0.0


def agreement(similarities: pl.DataFrame) -> Figures:
    """
    How well cosines agree with people, all from table `similarities` alone.

    `spearman` and `pearson` (times 100) are the model's, `overlap.spearman` and `overlap.pearson` the words';
    `spearman_over_overlap` is the difference, with its 95 % interval over pairs; `length_bias` see there.
    """
    found = Figures()
    gold_N, cosine_N, overlap_N = (similarities[column].to_numpy() for column in ("gold", "cosine", "overlap"))
    both = lambda side_N: {"spearman": spearman(side_N, gold_N), "pearson": pearson(side_N, gold_N)}
    model = found.add(both(cosine_N), f"the model gives all {len(gold_N)} pairs the same cosine")
    why = f"all {len(gold_N)} pairs have the same overlap of words"
    lexical = found.add({f"overlap.{name}": value for name, value in both(overlap_N).items()}, why)
    if model and lexical:
        over = bootstrap_spearman(gold_N, cosine_N, overlap_N)
        ends = {"": over.mean, ".low": over.low, ".high": over.high}
        found.values |= {f"spearman_over_overlap{end}": value for end, value in ends.items()}
    bias = length_bias(gold_N, cosine_N, similarities["longer"].to_numpy())
    found.add(
        {"length_bias": bias}, "the pairs below the middle of the scale are too few, or alike in length or cosine"
    )
    return found


def correlation(similarities: pl.DataFrame) -> Figures:
    """`spearman` and `pearson` (times 100) of cosines with people's scores; table `similarities`."""
    found, (gold_N, cosine_N) = Figures(), (similarities[column].to_numpy() for column in ("gold", "cosine"))
    if len(gold_N) < LEAST or len(set(gold_N)) == 1:
        found.missing.append(f"no spearman, pearson: {len(gold_N)} pairs are left, or all have one score")
        return found
    values = {"spearman": spearman(cosine_N, gold_N), "pearson": pearson(cosine_N, gold_N)}
    found.add(values, f"the model gives all {len(gold_N)} pairs the same cosine")
    return found


def length_bias(gold_N: np.ndarray, cosine_N: np.ndarray, longer_N: np.ndarray) -> float:
    """
    Do texts look alike because they are equally long? Asked of the pairs that are not alike in meaning.

        Spearman(|words left - words right|, cosine) x 100 over pairs with gold < (least gold + greatest gold) / 2

    Args:
        longer_N: words by which one text of the pair is longer than the other.
    Returns:
        -100 to 100; below 0 where a difference in length lowers the cosine; nan for fewer than three such pairs, or
        when they have all one difference or all one cosine.
    Source:
        the bias that Wu et al. 2022 (ESimCSE), section 1, find in SimCSE.
    """
    unlike_N = gold_N < (gold_N.min() + gold_N.max()) / 2
    return spearman(longer_N[unlike_N], cosine_N[unlike_N]) if unlike_N.sum() >= LEAST else float("nan")


def shape(pairs: pl.DataFrame, texts: list[str], vector_ND: np.ndarray) -> Figures:
    """
    What the vectors are like: `alignment` over pairs with gold > least + 4/5 (greatest - least), as above 4 of 0 to 5;
    `uniformity` over all texts, each once (of more than 20,000 a fixed sample); `random_cosine`, the mean cosine of two
    different texts; `effective_rank`, how many directions they fill.

    Source:
        Wang and Isola 2020, section 4.1; on rated pairs, Gao, Yao and Chen 2021, section 6.
    """
    found, number = Figures(), {text: at for at, text in enumerate(texts)}
    low, high = pairs["gold"].min(), pairs["gold"].max()
    alike = pairs.filter(pl.col("gold") > low + 0.8 * (high - low))  # type: ignore[operator]
    left_ND, right_ND = (vector_ND[[number[text] for text in alike[side]]] for side in ("left", "right"))
    found.values["alignment"] = alignment(left_ND, right_ND)
    some = np.random.default_rng(0).permutation(len(texts))[:MOST]
    values = {"uniformity": uniformity(vector_ND[some]), "random_cosine": random_cosine(vector_ND)}
    found.add(values, "there is only one text")
    found.add({"effective_rank": effective_rank(vector_ND)}, "all vectors are zeros")
    return found
