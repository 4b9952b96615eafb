"""
Neighbour retrieval: does a held-out sentence find the one that follows it, among all others?

It needs no labels. Quick-Thoughts (Logeswaran and Lee 2018) trains on this very task, so it shows first of all whether
a model learned anything; two baselines stand beside it: BM25, which knows only words, and chance, worked out on paper.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import bm25s
import numpy as np
import polars as pl
from scipy import sparse

from pipeline.metrics import from_ranks, ranks

logging.getLogger("bm25s").setLevel(logging.WARNING)  # it sets itself to tell its every step

CELLS = 8_000_000  # scores held at once: 32 MB of float32, whatever the number of candidates

# Digits and letters; an underscore parts words, so that `read_csv` meets "read a CSV". Chinese and Japanese letters
# stand singly: without spaces a whole clause would be one word.
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")


@dataclass(frozen=True)
class Questions:
    """
    N candidate texts, each of a group of its own, and Q questions: who follows `query`? `target` does.

    `row_N` is the text's row in the sentences that were given; `document_Q` and `place_Q` say where the query stands.
    """

    texts: list[str]
    row_N: np.ndarray
    group_N: np.ndarray
    query_Q: np.ndarray
    target_Q: np.ndarray
    document_Q: np.ndarray
    place_Q: np.ndarray
    same_text: int
    repeated: int

    @property
    def candidates(self) -> int:
        """How many texts a query chooses from: all but itself."""
        return len(self.texts) - 1


def questions(sentences: pl.DataFrame, *, most: int = 20_000, texts: int = 0) -> Questions:
    """
    Cut held-out sentences into texts and questions.

    A text that repeats stands once, where it comes first. A pair that repeats is asked once, and one whose two sides
    are the same text is not asked; both are counted. Where something was quarantined, places leave a gap and no pair.

    Args:
        sentences: columns `document`, `place`, `group`, `text`, of any number of shards.
        most: texts to stop at. Documents come by their digest, so the choice is as good as random and the same each
            time; the document in which the limit is met is cut there.
        texts: of an example, of which the first asks for the second; 0: running text.
    """
    ordered = sentences.select("document", "place", "group", "text").with_row_index("row").sort("document", "place")
    numbered = ordered.with_columns(first=pl.col("group").is_first_distinct())
    within = numbered.filter(pl.col("first").cum_sum() <= most)
    known = within.filter("first").with_row_index("number")
    rows = within.join(known.select("group", "number"), on="group", how="left", maintain_order="left")
    beside = rows.with_columns(pl.col("document", "place", "number").shift(-1).name.prefix("next_"))
    pairs = beside.filter(pl.col("next_document") == pl.col("document"), pl.col("next_place") == pl.col("place") + 1)
    pairs = pairs.filter(pl.col("place") % texts == 0) if texts else pairs
    unlike = pairs.filter(pl.col("number") != pl.col("next_number"))
    asked = unlike.unique(["number", "next_number"], keep="first", maintain_order=True)
    return Questions(
        texts=known["text"].to_list(),
        row_N=known["row"].to_numpy(),
        group_N=known["group"].to_numpy(),
        query_Q=asked["number"].to_numpy().astype(np.int64),
        target_Q=asked["next_number"].to_numpy().astype(np.int64),
        document_Q=asked["document"].to_numpy(),
        place_Q=asked["place"].to_numpy(),
        same_text=len(pairs) - len(unlike),
        repeated=len(unlike) - len(asked),
    )


def retrieval(rank_Q: np.ndarray, candidates: int) -> dict[str, float]:
    """MRR, hit@1 and hit@10 of the targets' ranks, with the numbers of queries and of candidates they come from."""
    return {**from_ranks(rank_Q, (1, 10)), "queries": len(rank_Q), "candidates": candidates}


def random_figures(candidates: int) -> dict[str, float]:
    """
    What a scorer gets that orders the candidates blindly: the exact expectation, each rank being as likely.

        mrr = (1 + 1/2 + ... + 1/N) / N,   hit@k = k / N
    """
    mrr = float((1 / np.arange(1, candidates + 1)).mean())
    return {"mrr": mrr, **{f"hit@{k}": min(k, candidates) / candidates for k in (1, 10)}}


def model_ranks(
    left_ND: np.ndarray,
    right_ND: np.ndarray,
    asked: Questions,
    score: Callable[[np.ndarray, np.ndarray], np.ndarray],
) -> np.ndarray:
    """
    Rank of each question's target by a model's own scores; the query is no candidate.

    Args:
        left_ND, right_ND: a vector for each text, as anchor and as candidate.
        score: [q, D] and [N, D] to [q, N], higher is nearer.
    Returns:
        int64 [Q], 1 is best.
    """
    return _ranks(asked, lambda query_q: score(left_ND[query_q], right_ND))


def bm25_ranks(asked: Questions) -> np.ndarray:
    """
    Rank of each question's target by BM25, made as strong as plain words allow.

    MRR on 8,000 sentences of Brown, 5,400 of novels, 3,400 of Python documentation and 8,400 of Chinese classics
    (November 2026): bm25s as it comes .062, .044, .146, .001; no stop words left out, underscores parting words,
    plural endings cut, k1 = 1.2 and Chinese letters singly .067, .046, .159, .036. Common words weigh next to nothing
    anyway; BM25+, BM25L and other k1 and b gave less.

    Returns:
        int64 [Q], 1 is best. A target that shares no word with its query comes last.
    Source:
        Robertson and Zaragoza 2009; plural endings: Harman 1991; in this form: Lu 2024 (bm25s), Lucene's variant.
    """
    words_N = [words(text) or [""] for text in asked.texts]
    index = bm25s.BM25(k1=1.2, b=0.75, method="lucene")
    index.index(words_N, show_progress=False)
    parts, size = index.scores, len(index.scores["indptr"]) - 1
    # bm25s keeps a column of document scores for each word; read as rows, that is the factor a product needs.
    score_VN = sparse.csr_matrix((parts["data"], parts["indices"], parts["indptr"]), shape=(size, len(words_N)))
    count_NV = _counts([[index.vocab_dict[word] for word in text] for text in words_N], size)
    return _ranks(asked, lambda query_q: (count_NV[query_q] @ score_VN).toarray())


def words(text: str) -> list[str]:
    """A text's words as BM25 compares them: lower case, without plural endings."""
    return [_singular(word) for word in WORD.findall(text.lower())]


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s") or word.endswith(("us", "ss")):
        return word
    if word.endswith("ies"):
        return word if word[-4] in "ae" else word[:-3] + "y"
    if word.endswith("es"):
        return word if word[-3] in "aeo" else word[:-1]
    return word[:-1]


def _counts(numbers_N: list[list[int]], size: int) -> sparse.csr_matrix:
    """How often each word stands in each text, [N, V]."""
    counts = [Counter(numbers) for numbers in numbers_N]
    data = np.array([times for count in counts for times in count.values()], np.float32)
    columns = np.array([number for count in counts for number in count], np.int32)
    ends = np.cumsum([0, *map(len, counts)])
    return sparse.csr_matrix((data, columns, ends), shape=(len(counts), size))


def _ranks(asked: Questions, score: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Ranks of all targets; `score` takes the numbers of some queries and gives [q, N]."""
    size, found = len(asked.texts), []
    step = max(1, CELLS // max(1, size))
    for start in range(0, len(asked.query_Q), step):
        query_q, target_q = asked.query_Q[start : start + step], asked.target_Q[start : start + step]
        score_qN = score(query_q)
        if score_qN.shape != (len(query_q), size):
            raise ValueError(f"score gave shape {score_qN.shape}; should be one number a pair, {(len(query_q), size)}")
        found.append(ranks(score_qN, target_q, query_q))
    return np.concatenate(found) if found else np.empty(0, np.int64)
