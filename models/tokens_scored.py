"""What a language model says of the words of texts, one by one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PREDICTING = frozenset({"log-bilinear", "ngram", "nplm"})  # kinds of encoder that tell the next word


@dataclass(frozen=True)
class TokenScores:
    """
    One entry for each predicted token: every word of each text, and the text's end.

        log p(w|c) = score - log_z

    Args:
        score_N: s(w, c) less the log Z that was trained or fixed, [N] nats; of counts log p itself.
        log_z_N: exact log-sum-exp of those over the vocabulary, [N] nats; 0 where the model is normalised.
        text_N: which text the token belongs to, [N], ascending.
    """

    score_N: NDArray[np.float64]
    log_z_N: NDArray[np.float64]
    text_N: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: Sequence["TokenScores"]) -> "TokenScores":
        """Of several lists of texts, one behind the other."""
        nothing = cls(np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
        columns = zip(*(vars(part).values() for part in (nothing, *parts)), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    def log_p(self) -> NDArray[np.float64]:
        """Normalised natural logarithms of the probabilities, [N]; -inf for what the model holds impossible."""
        return self.score_N - self.log_z_N

    def of_texts(self, texts: int) -> NDArray[np.float64]:
        """Logarithm of each text's probability, [texts] nats."""
        total_T = np.zeros(texts)
        np.add.at(total_T, self.text_N, self.log_p())
        return total_T
