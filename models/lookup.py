"""
Word tables, and the encoder that is nothing but one: a text's vector is the mean of its word vectors.

Letters besides those of `models`: N real tokens of a lane, row after row; E width of a word vector. No number of the
vocabulary stands for padding: lengths decide what is real.
"""

import torch
from torch import Tensor, nn

from models.hyperbolic import clip_to_ball, riemannian_factor, scale_as_released


class Words(nn.Module):
    """
    A table of word vectors, of one tower or shared by several.

    Args:
        vocabulary: number of words V.
        width: width E of a word vector.
        frozen: the table is never trained.
        initial: a new table is drawn evenly from -initial to initial.
        weight: ready-made vectors [V, E]; a Parameter is shared as it is, a Tensor is copied.
    Raises:
        ValueError: the ready-made vectors have another shape, or are trained elsewhere though `frozen`.
    """

    sparse: bool = False  # gradient as a sparse tensor: no [V, E] of zeros is made for each lane
    ball: float | None = None  # radius that the rows stay in, as points of the Poincaré ball; None: they are no points
    released: bool = False  # the gradient is changed as the released HyperQA does

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        frozen: bool = False,
        initial: float = 0.1,
        weight: Tensor | nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        self.width = width
        if weight is None:
            weight = nn.Parameter(torch.empty(vocabulary, width).uniform_(-initial, initial))
        elif not isinstance(weight, nn.Parameter):
            weight = nn.Parameter(weight.detach().clone())
        elif frozen and weight.requires_grad:
            raise ValueError("frozen word table shares its vectors with a trained one; freeze both or neither")
        if tuple(weight.shape) != (vocabulary, width):
            raise ValueError(f"word vectors are {tuple(weight.shape)}; vocabulary and width want {(vocabulary, width)}")
        self.weight = weight.requires_grad_(weight.requires_grad and not frozen)

    def forward(self, id_N: Tensor) -> Tensor:
        """Word vectors [N, E] of tokens [N]."""
        return nn.functional.embedding(id_N, self.weight, sparse=self.sparse)

    def mean(self, id_N: Tensor, length_L: Tensor) -> Tensor:
        """Mean word vector [L, E] of each text; zeros for a text without tokens."""
        start_L = length_L.cumsum(0) - length_L
        return nn.functional.embedding_bag(id_N, self.weight, start_L, mode="mean", sparse=self.sparse)

    def on_gradient(self) -> None:
        """Of rows that are points of the ball, the Riemannian gradient; or that of the released HyperQA."""
        if self.weight.grad is None:
            return
        if self.ball is not None:
            self.weight.grad *= riemannian_factor(self.weight.detach())
        if self.released:
            self.weight.grad = scale_as_released(self.weight.grad)

    @torch.no_grad()
    def after_step(self) -> None:
        """Bring rows that are points back into the ball."""
        if self.ball is not None and self.weight.requires_grad:
            self.weight.copy_(clip_to_ball(self.weight, self.ball))


class Dropout(nn.Module):
    """
    Dropout on word vectors: each number of each token by itself, or one mask for all.

    The usual kind draws from torch's default generator and divides what it keeps by 1 - rate. The shared kind takes
    one mask over the E numbers of a word vector, which the caller draws once a step for all towers, and divides by
    nothing, as the code of Logeswaran and Lee 2018 does.

    Raises:
        ValueError: the rate is not in [0, 1).
    """

    def __init__(self, rate: float, *, shared: bool) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"dropout is {rate}; it is a share of numbers to drop, from 0 to below 1")
        self.rate, self.shared = rate, shared

    @property
    def active(self) -> bool:
        """Whether anything is dropped at all."""
        return self.training and self.rate > 0

    def forward(self, word_NE: Tensor, mask_E: Tensor | None = None) -> Tensor:
        """
        The word vectors with some numbers set to 0.

        Raises:
            ValueError: the shared kind was given no mask.
        """
        if not self.active:
            return word_NE
        if not self.shared:
            return nn.functional.dropout(word_NE, self.rate)
        if mask_E is None:
            raise ValueError("shared dropout got no mask; draw one of 0 and 1 over the word vector's width each step")
        return word_NE * mask_E.to(word_NE.dtype)


class Encoder(nn.Module):
    """
    What every encoder has: a word table that it may share, dropout on its vectors, and the width of a text's vector.

    Called with (id_LT, length_L, shared, view_L) it gives vector_LD; `shared` is the mask [E] of shared dropout, or
    None; `view_L` says which of its views each text is shown in, for encoders that know views.
    """

    words: Words | None
    drop: Dropout
    width: int
    precise: bool = False  # vectors are float64 whatever the weights are

    def share_head(self, other: "Encoder") -> None:
        """Take another encoder's head in place of the own one, for encoders that have heads."""

    def on_gradient(self) -> None:
        """Change the gradients of a step before they are clipped and the weights move."""

    def after_step(self) -> None:
        """Change the weights after they moved."""

    def readout(self, id_LT: Tensor, length_L: Tensor) -> Tensor:
        """Vectors [L, D] after training, where they are others than in training."""
        vector_LD: Tensor = self(id_LT, length_L)
        return vector_LD


class Bag(Encoder):
    """
    Mean of the word vectors of a text's tokens.

    Args:
        vocabulary: number of words.
        width: width of a word vector, hence of a text's vector.
        dropout: share of the word vectors' numbers set to 0 in training.
        shared_dropout: one mask for the whole batch, see `Dropout`.
        table: name of a ready-made table; whoever resolves it hands it over as `words`.
        frozen: the table is never trained.
        initial: a new table is drawn evenly from -initial to initial.
        smooth: a, above 0: a new table's vectors start a / (a + p) as long, p being the word's relative frequency, so
            that common words weigh little from the start.
        words: a ready-made or shared table; `width`, `frozen`, `initial` and `smooth` then say nothing.
        frequency: p of each word, [V]; needed for `smooth` alone.
    Raises:
        ValueError: `table` is named but no `words` given; `smooth` without `frequency`.
    Source:
        For `smooth`: Arora, Liang and Ma 2017, section 3, smooth inverse frequency.
    """

    words: Words

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 300,
        dropout: float = 0.0,
        shared_dropout: bool = False,
        table: str = "",
        frozen: bool = False,
        initial: float = 0.1,
        smooth: float = 0.0,
        words: Words | None = None,
        frequency: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.words = words or new_words(vocabulary, width, table=table, frozen=frozen, initial=initial)
        if smooth > 0 and words is None:
            if frequency is None:
                raise ValueError(f"encoder.smooth is {smooth} but no word frequencies were handed over")
            with torch.no_grad():
                self.words.weight.mul_((smooth / (smooth + frequency))[:, None])
        self.drop = Dropout(dropout, shared=shared_dropout)
        self.width = self.words.width

    def forward(
        self, id_LT: Tensor, length_L: Tensor, shared: Tensor | None = None, view_L: Tensor | None = None
    ) -> Tensor:
        """
        Vectors [L, D] of texts; zeros for a text without tokens.

        Args:
            id_LT: vocabulary numbers; whatever stands behind a text's end is not read.
            length_L: int64 number of tokens of each text.
            shared: mask [D] of 0 and 1 for shared dropout.
        """
        id_N = id_LT[real(length_L, id_LT.shape[1])]
        if self.drop.active and not self.drop.shared:
            return _mean(self.drop(self.words(id_N)), length_L)
        return self.drop(self.words.mean(id_N, length_L), shared)  # a mask common to all words commutes with the mean


def new_words(vocabulary: int, width: int, *, table: str, frozen: bool, initial: float) -> Words:
    """
    A table of an encoder that was given none.

    Raises:
        ValueError: the encoder names a ready-made one.
    """
    if table:
        raise ValueError(f'encoder.table is "{table}" but no table was handed over; resolve the name and pass `words`')
    return Words(vocabulary, width, frozen=frozen, initial=initial)


def real(length_L: Tensor, most: int) -> Tensor:
    """True [L, T] where a token is the text's, False where it fills; T is `most`."""
    return torch.arange(most, device=length_L.device) < length_L[:, None]


def _mean(word_NE: Tensor, length_L: Tensor) -> Tensor:
    row_N = torch.repeat_interleave(length_L)
    sum_LE = word_NE.new_zeros(len(length_L), word_NE.shape[1]).index_add(0, row_N, word_NE)
    return sum_LE / length_L.clamp(min=1)[:, None]
