"""Evaluation `neighbours`: retrieval of the next sentence."""

import numpy as np
import polars as pl

from pipeline.evaluations.scores import Model, Scores, finite
from pipeline.metrics import alignment, bootstrap_difference, uniformity
from pipeline.neighbours import Questions, bm25_ranks, model_ranks, questions, random_figures, retrieval


def neighbours(
    model: Model, sentences: pl.DataFrame, vectors: np.ndarray | None = None, *, most: int = 20_000, texts: int = 0
) -> Scores:
    """
    Retrieval of the next sentence, against BM25 and chance; alignment and uniformity of the readout.

    Args:
        sentences: held-out sentences, columns as in `tables.SENTENCES`.
        vectors: their readouts, row for row; None: the texts that are needed are encoded.
        most: candidates at most, see `neighbours.questions`.
        texts: texts of an example, of which the first asks for the second; 0: running text.
    Raises:
        ValueError: vectors of another number than sentences, or a vector that is not finite.
    """
    asked = questions(sentences, most=most, texts=texts)
    counts = {"queries": len(asked.query_Q), "candidates": asked.candidates}
    counts |= {"same_text": asked.same_text, "repeated": asked.repeated}
    if not len(asked.query_Q):
        note = (
            f"nothing to ask: none of {len(sentences)} held-out sentences is followed by another one; "
            "raise corpus.held_out, or add documents of several sentences"
        )
        return Scores("neighbours", counts={**counts, "candidates": max(0, asked.candidates)}, note=note)
    readout_ND = _readout(model, asked, len(sentences), vectors)
    rank_Q, lexical_Q = model_ranks(readout_ND, readout_ND, asked, model.score), bm25_ranks(asked)
    return Scores("neighbours", _figures(asked, readout_ND, rank_Q, lexical_Q), counts, _rows(asked, rank_Q, lexical_Q))


def _readout(model: Model, asked: Questions, size: int, vectors: np.ndarray | None) -> np.ndarray:
    if vectors is not None and len(vectors) != size:
        raise ValueError(f"{len(vectors)} vectors for {size} sentences; should be row for row")
    return finite(model.encode(asked.texts) if vectors is None else vectors[asked.row_N], asked.texts)


def _figures(asked: Questions, readout_ND: np.ndarray, rank_Q: np.ndarray, lexical_Q: np.ndarray) -> dict[str, float]:
    size, plain = asked.candidates, ("mrr", "hit@1", "hit@10")
    sides = {"": retrieval(rank_Q, size), "bm25.": retrieval(lexical_Q, size), "random.": random_figures(size)}
    over = bootstrap_difference(1 / rank_Q, 1 / lexical_Q)
    named = {f"{side}{name}": figures[name] for side, figures in sides.items() for name in plain}
    named |= {"mrr_over_bm25": over.mean, "mrr_over_bm25.low": over.low, "mrr_over_bm25.high": over.high}
    named["alignment"] = alignment(readout_ND[asked.query_Q], readout_ND[asked.target_Q])
    named["uniformity"] = uniformity(readout_ND)
    return {f"neighbours.{name}": value for name, value in named.items()}


def _rows(asked: Questions, rank_Q: np.ndarray, lexical_Q: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "document": asked.document_Q,
            "place": asked.place_Q,
            "query": asked.group_N[asked.query_Q],
            "target": asked.group_N[asked.target_Q],
            "rank_model": rank_Q.astype(np.uint32),
            "rank_bm25": lexical_Q.astype(np.uint32),
        }
    )
