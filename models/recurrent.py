"""
A recurrent encoder: a text's vector is the state of a gated recurrent network after its last token.

Letters besides those of `models`: G directions (1 or 2), H width of a direction's state, Z = 3H its gates, N real
tokens of a lane, E width of a word vector.

Measured by `benchmarks/gru.py` (one core with avx512_bf16, lanes of 50 rows, both directions, width 600): with packed
sequences in fp32 `torch.nn.GRU` reaches 18 % of what a bf16 matrix product can do, this loop 21 % in fp32 and 63 %
under bf16 autocast. Three things do it: tokens are laid out step after step with no padding between them, both
directions run in one batched product, and the backward pass is written out, so that the weights' gradient is one
product over all steps and a step back is a handful of operations.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from models.lookup import Dropout, Encoder, Words, new_words, real


class GRU(Encoder):
    """
    State of a gated recurrent network after a text's last token; zeros for a text without tokens.

        r = sigmoid(W_r x + b_r + U_r h + c_r)        z likewise
        n = tanh(W_n x + b_n + r (U_n h + c_n))
        h <- n + z (h - n)

    Weights live in a `torch.nn.GRU`, under its names and in its layout, so they move between the two freely.

    Args:
        vocabulary: number of words.
        width: width of a direction's state.
        word_width: width of a word vector.
        bidirectional: a second network reads from the end; both states stand one behind the other, forward first.
        dropout: share of the word vectors' numbers set to 0 in training.
        shared_dropout: one mask for the whole batch, see `Dropout`.
        table: name of a ready-made table; whoever resolves it hands it over as `words`.
        frozen: the table is never trained.
        initial: a new table is drawn evenly from -initial to initial.
        words: a ready-made or shared table; `word_width`, `frozen` and `initial` then say nothing.
    Raises:
        ValueError: `table` is named but no `words` given.
    Source:
        Cho et al. 2014, section 2.3, with the reset gate behind the product, as in `torch.nn.GRU`; as a sentence
        encoder Logeswaran and Lee 2018, section 4.1.
    """

    words: Words

    def __init__(
        self,
        vocabulary: int,
        *,
        width: int = 600,
        word_width: int = 620,
        bidirectional: bool = False,
        dropout: float = 0.0,
        shared_dropout: bool = False,
        table: str = "",
        frozen: bool = False,
        initial: float = 0.1,
        words: Words | None = None,
    ) -> None:
        super().__init__()
        self.words = words or new_words(vocabulary, word_width, table=table, frozen=frozen, initial=initial)
        self.drop = Dropout(dropout, shared=shared_dropout)
        self.gru = nn.GRU(self.words.width, width, bidirectional=bidirectional)
        self.width = width * (2 if bidirectional else 1)

    def forward(
        self, id_LT: Tensor, length_L: Tensor, shared: Tensor | None = None, view_L: Tensor | None = None
    ) -> Tensor:
        """
        Vectors [L, D] of texts, in the weights' precision, also where autocast multiplies in a lower one.

        Args:
            id_LT: vocabulary numbers; whatever stands behind a text's end is not read.
            length_L: int64 number of tokens of each text; rows in any order.
            shared: mask [E] of 0 and 1 for shared dropout.
        """
        word_NE = self.drop(self.words(id_LT[real(length_L, id_LT.shape[1])]), shared)
        low = _product_dtype(word_NE)
        with torch.autocast(word_NE.device.type, enabled=False):
            return self._run(word_NE, _steps(length_L), low)

    def _run(self, word_NE: Tensor, steps: "_Steps", low: torch.dtype) -> Tensor:
        H = self.gru.hidden_size
        weight_ih, weight_hh, bias_ih, bias_hh = (self._stacked(name) for name in _NAMES)
        read_GN = steps.read_GN[: len(weight_ih)]
        word_GNE = word_NE.to(low).index_select(0, read_GN.flatten()).unflatten(0, read_GN.shape)
        bias_GZ = bias_ih + nn.functional.pad(bias_hh[:, : 2 * H], (0, H))  # c_n stays inside the reset gate
        gate_GNZ = torch.baddbmm(
            bias_GZ.roll(H, dims=1).to(low)[:, None], word_GNE, weight_ih.to(low).roll(H, dims=1).transpose(1, 2)
        )
        reset_bias_G1H = bias_hh[:, None, 2 * H :]
        state_GLH = _Recurrence.apply(gate_GNZ, weight_hh.to(low), reset_bias_G1H, steps.sizes, len(steps.place_L))
        return state_GLH[:, steps.place_L].transpose(0, 1).flatten(1)

    def _stacked(self, name: str) -> Tensor:
        both = (name, f"{name}_reverse") if self.gru.bidirectional else (name,)
        return torch.stack([getattr(self.gru, one) for one in both])


_NAMES = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


@dataclass(frozen=True)
class _Steps:
    """Tokens laid out step after step; rows by falling length, so that those still running come first."""

    sizes: list[int]  # rows still running at each step
    read_GN: Tensor  # which token (row after row) is read, forward and backward
    place_L: Tensor  # where each row stands


def _steps(length_L: Tensor) -> _Steps:
    order_L = length_L.argsort(descending=True, stable=True)
    longest = int(length_L.max()) if len(length_L) else 0
    time_T = torch.arange(longest, device=length_L.device)
    running_TL = length_L[order_L] > time_T[:, None]
    time_N, place_N = running_TL.nonzero(as_tuple=True)
    first_N, length_N = (x_L[order_L][place_N] for x_L in (length_L.cumsum(0) - length_L, length_L))
    read_GN = torch.stack([first_N + time_N, first_N + length_N - 1 - time_N])
    return _Steps(running_TL.sum(dim=1).tolist(), read_GN, order_L.argsort())


def _product_dtype(word_NE: Tensor) -> torch.dtype:
    """What autocast would multiply in; it leaves float64 alone."""
    device = word_NE.device.type
    casts = torch.is_autocast_enabled(device) and word_NE.dtype != torch.float64
    return torch.get_autocast_dtype(device) if casts else word_NE.dtype


class _Recurrence(torch.autograd.Function):
    """
    The loop over time. Products in the precision of `gate_GNZ`, states and gates in that of `bias_G1H`.

    A step multiplies the gradient of its state, number by number, with five factors that the forward pass leaves
    behind (a = U_n h + c_n is what the reset gate lets through):

        to the gates' inputs   n: (1 - z)(1 - n n)    r: (to n) a r (1 - r)    z: (h - n) z (1 - z)
        to a                   (to n) r
        to h directly          z

    They lie in the order n, r, z, a, h: the first three are the gradient of the input product, the second to fourth
    that of the recurrent one, each in one stretch of memory. This is why input gates come in the order n, r, z.
    """

    @staticmethod
    def forward(
        ctx: Any, gate_GNZ: Tensor, weight_GZH: Tensor, bias_G1H: Tensor, sizes: list[int], rows: int
    ) -> Tensor:
        G, N, Z = gate_GNZ.shape
        H, exact = Z // 3, bias_G1H.dtype
        keep = any(ctx.needs_input_grad)
        weight_GHZ = weight_GZH.transpose(1, 2)
        state_GLH = gate_GNZ.new_zeros(G, rows, H, dtype=exact)
        before_GNH = gate_GNZ.new_empty(G, N, H)
        factor_GN5H = gate_GNZ.new_empty(G, N if keep else 0, 5, H)
        end = 0
        for size in sizes:
            now, end = slice(end, end + size), end + size
            h = state_GLH[:, :size]  # rows that have ended keep their last state
            before_GNH[:, now] = h
            u, x = torch.bmm(before_GNH[:, now], weight_GHZ).to(exact), gate_GNZ[:, now].to(exact)
            r, z = (u[..., : 2 * H] + x[..., H:]).sigmoid_().chunk(2, dim=2)
            a = u[..., 2 * H :] + bias_G1H
            n = torch.addcmul(x[..., :H], r, a).tanh_()
            if keep:
                factor_GN5H[:, now] = _factors(h, r, z, a, n)
            state_GLH[:, :size] = torch.lerp(n, h, z)
        ctx.save_for_backward(before_GNH, factor_GN5H, weight_GZH)
        ctx.sizes = sizes
        return state_GLH

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_GLH: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        before_GNH, factor_GN5H, weight_GZH = ctx.saved_tensors
        (G, N, H), exact = before_GNH.shape, grad_GLH.dtype
        grad_GLH = grad_GLH.clone()
        grad_GN4H = before_GNH.new_empty(G, N, 4, H)
        flat_GNF = grad_GN4H.view(G, N, 4 * H)
        start = N
        with torch.autocast(grad_GLH.device.type, enabled=False):
            for size in reversed(ctx.sizes):
                now, start = slice(start - size, start), start - size
                part = grad_GLH[:, :size, None] * factor_GN5H[:, now].to(exact)
                grad_GN4H[:, now] = part[:, :, :4]
                through = torch.bmm(flat_GNF[:, now, H:], weight_GZH)
                grad_GLH[:, :size] = part[:, :, 4] + through.to(exact)
            grad_weight_GZH = torch.bmm(flat_GNF[..., H:].transpose(1, 2), before_GNH)
            grad_bias_G1H = grad_GN4H[:, :, 3].sum(dim=1, keepdim=True, dtype=exact)
        return flat_GNF[..., : 3 * H], grad_weight_GZH, grad_bias_G1H, None, None


def _factors(h: Tensor, r: Tensor, z: Tensor, a: Tensor, n: Tensor) -> Tensor:
    """The five factors of a step, [G, rows, 5, H]; see `_Recurrence`."""
    factor = h.new_empty(*h.shape[:2], 5, h.shape[2])
    to_n, to_r, to_z, to_a, to_h = factor.unbind(2)
    rest = 1 - z
    torch.mul(rest, 1 - n * n, out=to_n)
    torch.mul(to_n, r, out=to_a)
    torch.mul(to_a, (1 - r) * a, out=to_r)
    torch.mul(h - n, z * rest, out=to_z)
    to_h.copy_(z)
    return factor
