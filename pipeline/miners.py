"""Who finds hard negatives: by words, by a model's vectors, in the anchor's own document, or anywhere by chance."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl
import xxhash
from numpy.typing import NDArray
from scipy import sparse

from models.recipe import Choice
from pipeline import mine_search
from pipeline.embed import matrix
from pipeline.mine_search import CELLS
from pipeline.neighbours import words
from pipeline.store import Piece, Store

Found = tuple[NDArray[np.float32], NDArray[np.int64]]  # scores and places among the candidates, [Q, k]; -inf fills
Rows = NDArray[np.int64]


def bm25(*, k1: float = 1.2, b: float = 0.75, refresh: int = 0) -> None:
    """
    Texts that share rare words with the anchor; how rare a word is, the corpus says once and for all.

    Args:
        refresh: raise it to count words anew, as a corpus that has grown a lot may want.
    Source:
        Robertson and Zaragoza 2009, in the form of `neighbours.bm25_ranks`.
    """


def dense(*, model: str) -> None:
    """
    Texts whose vectors point where the anchor's does, by cosine.

    Args:
        model: a model folder that stays as it is, whatever is trained; another one mines anew.
    """


def same_document() -> None:
    """The anchor's own document, the nearest places first."""


def drawn() -> None:
    """Any texts of the corpus, drawn."""


MINERS: dict[str, Callable[..., None]] = {"bm25": bm25, "dense": dense, "same-document": same_document, "random": drawn}
SCORED = ("bm25", "dense")  # whose scores say how right a text may be


class Miner(Protocol):
    """What the search asks of a miner: queries of one shard, candidates of any."""

    def ask(self, number: int, row_Q: Rows) -> Any:
        """Some rows of a shard as queries."""
        ...

    def nearest(self, asked: Any, number: int, row_N: Rows, k: int) -> Found:
        """The `k` nearest of some rows of a shard."""
        ...

    def right(self, asked: Any, at_P: Rows, number: int, row_P: Rows) -> NDArray[np.float32]:
        """Scores of query `at_P` with row `row_P`, pair by pair."""
        ...


@dataclass(frozen=True)
class Dense:
    """By vectors; of more texts than are searched exactly, by cells."""

    store: Store
    vectors: Mapping[int, Piece]
    cells: Callable[[int, NDArray[np.float32]], NDArray[np.float32]] | None = None  # centres of a shard's cells

    def ask(self, number: int, row_Q: Rows) -> NDArray[np.float32]:
        """Unit vectors."""
        return mine_search.unit(matrix(self.store.read(self.vectors[number], ["vector"])["vector"].gather(row_Q)))

    def nearest(self, asked: Any, number: int, row_N: Rows, k: int) -> Found:
        """By inner products of unit vectors."""
        text_ND = self.ask(number, row_N)
        if self.cells is None or len(text_ND) < mine_search.CELL_TEXTS:
            return mine_search.exact(asked, text_ND, k)
        return mine_search.by_cells(asked, text_ND, self.cells(number, text_ND), k)

    def right(self, asked: Any, at_P: Rows, number: int, row_P: Rows) -> NDArray[np.float32]:
        """Inner products of unit vectors."""
        return np.einsum("pd,pd->p", asked[at_P], self.ask(number, row_P))


@dataclass(frozen=True)
class Lexical:
    """By words: what a shared word weighs depends on the texts that were counted once."""

    store: Store
    sentences: Mapping[int, Piece]
    rarity: Piece  # table `rarity`
    k1: float
    b: float

    def ask(self, number: int, row_Q: Rows) -> sparse.csr_matrix:
        """How often each word stands in each text, [Q, V]."""
        texts = self.store.read(self.sentences[number], ["text"])["text"].gather(row_Q).to_list()
        return counted(texts)[1]

    def nearest(self, asked: Any, number: int, row_N: Rows, k: int) -> Found:
        """In blocks of queries; a text that shares no word is not found."""
        text_VN = self._weighed(number, row_N).T.tocsr()
        k = min(k, len(row_N))
        score_QK, row_QK = np.full((asked.shape[0], k), -np.inf, np.float32), np.full((asked.shape[0], k), -1)
        block = max(1, CELLS // max(1, len(row_N)))
        for at in range(0, asked.shape[0], block):
            score_BN = (asked[at : at + block] @ text_VN).toarray()
            place_BK = np.argpartition(-score_BN, k - 1, axis=1)[:, :k] if k else row_QK[at : at + block]
            place_BK.sort(axis=1)
            found_BK = np.take_along_axis(score_BN, place_BK, axis=1)
            order_BK = np.argsort(-found_BK, axis=1, kind="stable")
            found_BK = np.take_along_axis(found_BK, order_BK, axis=1)
            score_QK[at : at + block] = np.where(found_BK > 0, found_BK, -np.inf)
            row_QK[at : at + block] = np.take_along_axis(place_BK, order_BK, axis=1)
        return score_QK, row_QK

    def right(self, asked: Any, at_P: Rows, number: int, row_P: Rows) -> NDArray[np.float32]:
        """The same scores, pair by pair."""
        found = asked[at_P].multiply(self._weighed(number, row_P)).sum(axis=1)
        return np.asarray(found, np.float32).ravel()

    def _weighed(self, number: int, row_N: Rows) -> sparse.csr_matrix:
        """What each word of each text adds to the score of a query that has it once, [N, V]."""
        length_N, count_NV = counted(self.store.read(self.sentences[number], ["text"])["text"].gather(row_N).to_list())
        facts, known = self.rarity.facts, self.store.read(self.rarity)
        texts, mean = facts["texts"], max(facts["mean"], 1e-9)
        times_V = np.zeros(WORDS, np.float32)
        times_V[known["word"].to_numpy()] = known["texts"].to_numpy()
        rare_V = np.log1p((texts - times_V + 0.5).clip(min=0.5) / (times_V + 0.5)).astype(np.float32)
        row_E = np.repeat(np.arange(len(row_N)), np.diff(count_NV.indptr))
        long_E = (self.k1 * (1 - self.b + self.b * length_N / mean))[row_E]
        weight_E = rare_V[count_NV.indices] * count_NV.data / (count_NV.data + long_E)
        return sparse.csr_matrix((weight_E.astype(np.float32), count_NV.indices, count_NV.indptr), count_NV.shape)


WORDS = 1 << 22  # numbers that words are hashed to


def counted(texts: list[str]) -> tuple[NDArray[np.float32], sparse.csr_matrix]:
    """Words of each text, [N], and how often each stands in it, [N, V]."""
    found = [[xxhash.xxh3_64_intdigest(word.encode()) % WORDS for word in words(text)] for text in texts]
    length_N = np.array([len(one) for one in found], np.int64)
    flat = np.fromiter((word for one in found for word in one), np.int32, int(length_N.sum()))
    ends = np.concatenate([[0], np.cumsum(length_N)])
    count_NV = sparse.csr_matrix((np.ones(len(flat), np.float32), flat, ends), (len(texts), WORDS))
    count_NV.sum_duplicates()
    return length_N.astype(np.float32), count_NV


def rarity(texts: list[str]) -> tuple[pl.DataFrame, float]:
    """Table `rarity` of some texts, and their mean number of words."""
    length_N, count_NV = counted(texts)
    times_V = np.bincount(count_NV.indices, minlength=WORDS)
    word = np.flatnonzero(times_V)
    frame = pl.DataFrame({"word": word.astype(np.uint32), "texts": times_V[word].astype(np.uint32)})
    return frame, float(length_N.mean()) if len(texts) else 0.0


def beside(
    document_Q: NDArray[np.uint64], place_Q: Rows, document_N: NDArray[np.uint64], place_N: Rows, k: int
) -> Found:
    """
    The `k` rows of each query's own document whose places are nearest: a score is the distance, below 0.

    Args:
        document_N, place_N: candidates, sorted by document and place.
    """
    first_Q = np.searchsorted(document_N, document_Q)
    size_Q = np.searchsorted(document_N, document_Q, side="right") - first_Q
    score_QK, row_QK = np.full((len(document_Q), k), -np.inf, np.float32), np.full((len(document_Q), k), -1)
    for at, (first, size) in enumerate(zip(first_Q, size_Q, strict=True)):
        far_N = -np.abs(place_N[first : first + size] - place_Q[at]).astype(np.float32)
        order = np.argsort(-far_N, kind="stable")[:k]
        score_QK[at, : len(order)], row_QK[at, : len(order)] = far_N[order], first + order
    return score_QK, row_QK


def miner_of(choice: Choice, store: Store, sentences: Mapping[int, Piece], given: Mapping[str, Any]) -> Miner:
    """A miner that scores; `given` are its vectors and cells, or its table `rarity`."""
    if choice.kind == "dense":
        return Dense(store, given["vectors"], given.get("cells"))
    return Lexical(store, sentences, given["rarity"], choice.options["k1"], choice.options["b"])
