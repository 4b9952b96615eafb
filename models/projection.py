"""
The encoder of HyperQA: word vectors through one layer that all texts share, pooled, and brought into the Poincaré ball.

A point near the ball's edge needs many digits, since distances there depend on 1 - |x|^2. Points of the ball are
therefore float64, and so are all vectors that meet them in a step; weights keep their own precision. What is kept after
training is float32: at the default radius that moves 1 - |x|^2 by a hundred-thousandth of itself, at 1 - 1e-5 by a part
that shows.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from models.hyperbolic import clip_to_ball, scale_as_released, with_riemannian_gradient
from models.lookup import Dropout, Encoder, Words, new_words, real


class Projection(Encoder):
    """
    Projected words, summed up, as a point of the Poincaré ball.

        y = scale sum over t of relu( W z[t] + b ),   y <- radius y / |y| where |y| > radius

    over the real tokens t alone: W z + b of a padding's zeros would be b.

    Args:
        vocabulary: number of words.
        width: width D of a text's vector.
        word_width: width of a new word vector; a ready table has its own.
        dropout: share of the numbers set to 0 in training, of word vectors and then of y before it is clipped.
        pooling: `sum`, or `mean` over the tokens.
        scale: y is multiplied by it, above 0. A new layer's sums are ten to a hundred long, so without it every text
            starts on the edge, where `point` leaves next to nothing of any gradient.
        head: `ball`, or `none`: y as it is.
        radius: of the ball that points stay in, from above 0 to 1; at 1 most distances are infinite but for rounding.
        riemannian: what Riemannian gradients are taken of. `point`: the text's vector. `table`: the word vectors, which
            then lie in the ball, those handed over after clipping; meant for plain gradient descent. `none`: nothing.
            `reference`: see `scale_as_released`.
        table: name of a ready-made table; whoever resolves it hands it over as `words`.
        frozen: the table is never trained.
        initial: a new table is drawn evenly from -initial to initial.
        words: a ready-made or shared table; `word_width`, `frozen` and `initial` then say nothing.
    Raises:
        ValueError: a number out of its range; `point` without a ball; `table` though word vectors are frozen.
    Source:
        Tay, Tuan and Hui 2018 (HyperQA), the projection layer and the sum; dropout and its places as in the authors'
        code. Scale, mean and a radius below 1 are ours.
    """

    words: Words

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 300,
        word_width: int = 300,
        dropout: float = 0.2,
        pooling: Literal["sum", "mean"] = "sum",
        scale: float = 1.0,
        head: Literal["ball", "none"] = "ball",
        radius: float = 0.99,
        riemannian: Literal["point", "table", "none", "reference"] = "point",
        table: str = "",
        frozen: bool = True,
        initial: float = 0.1,
        words: Words | None = None,
    ) -> None:
        super().__init__()
        _check(scale, head, radius, riemannian)
        self.words = words or new_words(vocabulary, word_width, table=table, frozen=frozen, initial=initial)
        self.layer = nn.Linear(self.words.width, width)
        self.drop = Dropout(dropout, shared=False)
        self.width, self.pooling, self.scale, self.radius, self.riemannian = width, pooling, scale, radius, riemannian
        self.precise = head == "ball"
        self.words.released = self.words.released or riemannian == "reference"
        self.on_edge: Tensor | None = None  # share of the texts of the last call that were clipped, []
        if riemannian == "table":
            if not self.words.weight.requires_grad:
                raise ValueError('encoder.riemannian is "table" but the word table is frozen; set encoder.frozen=false')
            self.words.ball = radius
            self.words.after_step()

    def forward(
        self, id_LT: Tensor, length_L: Tensor, shared: Tensor | None = None, view_L: Tensor | None = None
    ) -> Tensor:
        """
        Vectors [L, D] of texts, float64 where they are points of the ball; zeros for a text without tokens.

        Args:
            id_LT: vocabulary numbers; whatever stands behind a text's end is not read.
            length_L: int64 number of tokens of each text.
        """
        word_NE = self.drop(self.words(id_LT[real(length_L, id_LT.shape[1])]))
        sum_LD = _sum(nn.functional.relu(self.layer(word_NE)), length_L)
        pooled_LD = sum_LD / length_L.clamp(min=1)[:, None] if self.pooling == "mean" else sum_LD
        vector_LD = self.scale * self.drop(pooled_LD)
        return self._in_ball(vector_LD.double()) if self.precise else vector_LD

    def _in_ball(self, vector_LD: Tensor) -> Tensor:
        self.on_edge = (vector_LD.detach().norm(dim=1) > self.radius).double().mean()
        point_LD = clip_to_ball(vector_LD, self.radius)
        return with_riemannian_gradient(point_LD) if self.riemannian == "point" else point_LD

    def on_gradient(self) -> None:
        """Under `reference`, what the released code does to each tensor's gradient; words see to their own."""
        for parameter in self.layer.parameters() if self.riemannian == "reference" else ():
            if parameter.grad is not None:
                parameter.grad = scale_as_released(parameter.grad)


def _sum(hidden_ND: Tensor, length_L: Tensor) -> Tensor:
    """Sum of each text's tokens [L, D], in float32 at least."""
    hidden_ND = hidden_ND if hidden_ND.dtype == torch.float64 else hidden_ND.float()
    row_N = torch.repeat_interleave(length_L)
    return hidden_ND.new_zeros(len(length_L), hidden_ND.shape[1]).index_add(0, row_N, hidden_ND)


def _check(scale: float, head: str, radius: float, riemannian: str) -> None:
    if not scale > 0:
        raise ValueError(f"encoder.scale is {scale}; it multiplies vectors and must be above 0")
    if not 0 < radius <= 1:
        raise ValueError(f"encoder.radius is {radius}; the ball's own is 1: above 0, at most 1")
    if riemannian == "point" and head == "none":
        raise ValueError(
            'encoder.riemannian is "point" but encoder.head is "none", so there is no point of the ball; set '
            'encoder.riemannian to "none", or encoder.head to "ball"'
        )
