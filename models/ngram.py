"""The n-gram model: counts of words after words, with no vector and no gradient."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from models.counting import Counts, Formula, Smoothing, windows
from models.lookup import Dropout, Encoder
from models.tokens_scored import TokenScores


class Ngram(Encoder):
    """
    How likely each next word is after the `order` - 1 words before it, by counting.

    Args:
        vocabulary: entries of the tokenizer; beside them the end of a text is predicted.
        order: words of an n-gram, the predicted one among them.
        smoothing: `mle`, `add-k`, `interpolated` or `backoff`, see `models.counting.Counts.probability`.
        k: what `add-k` adds to each count.
        share: of the longer context in `interpolated`.
        discount: what `backoff` takes off each count.
    Raises:
        ValueError: an order below 1, or a number that makes no probability.
    """

    def __init__(
        self,
        vocabulary: int,
        *,
        order: int = 5,
        smoothing: Smoothing = "backoff",
        k: float = 1.0,
        share: float = 0.7,
        discount: float = 0.5,
    ) -> None:
        super().__init__()
        if order < 1:
            raise ValueError(f"encoder.order is {order}; at least 1, which counts words without what is before them")
        if k <= 0:
            raise ValueError(f"encoder.k is {k}; should be above 0; smoothing = mle adds nothing")
        for name, value in (("share", share), ("discount", discount)):
            if not 0 < value < 1:
                raise ValueError(f"encoder.{name} is {value}; should be between 0 and 1")
        self.words, self.drop, self.width = None, Dropout(0.0, shared=False), 0
        self.order, self.end = order, vocabulary
        self.formula = Formula(smoothing, k, share, discount)
        self.counts: Counts | None = None

    def forward(
        self, id_LT: Tensor, length_L: Tensor, shared: Tensor | None = None, view_L: Tensor | None = None
    ) -> Tensor:
        """
        Raises:
            ValueError: always; counts have no vector.
        """
        raise ValueError("an n-gram model has no vectors; ask for token_scores")

    def read(self, file: Path) -> None:
        """
        Take the counts of a file.

        Raises:
            ValueError: it does not fit, see `models.counts_file.read`.
        """
        from models import counts_file  # of those who load a model, few load this one

        gram_GO, count_G = counts_file.read(file, self.order, self.end)
        self.counts = Counts(gram_GO, count_G, self.end + 1)

    def token_scores(self, ids: Sequence[Sequence[int]]) -> TokenScores:
        """Logarithms of the probabilities of all words and ends; texts are vocabulary numbers."""
        assert self.counts is not None, "counts are read where the folder is"
        length_S = np.array([len(text) for text in ids], dtype=np.int64)
        id_N = np.array([word for text in ids for word in text], dtype=np.uint32)
        p_P = self.counts.probability(windows(id_N, length_S, self.order, self.end), self.formula)
        with np.errstate(divide="ignore"):
            return TokenScores(np.log(p_P), np.zeros(len(p_P)), np.repeat(np.arange(len(ids)), length_S + 1))
