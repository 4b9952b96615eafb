"""
The nearest texts of each of many: exact in blocks, or by cells where that would take too long; lists that merge.

Scores are inner products of float32 vectors. A first look may round these to bfloat16, which is several times as fast
where the processor knows it; what it finds is scored again without rounding, and a row is believed only where the
rounding cannot have hidden a nearer text. All other rows are looked at again.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

CELLS = 1 << 25  # scores held at once: 64 MB rounded, 128 MB whole
NEAR = 1 << 20  # numbers of vectors that are scored together: 4 MB, which stay in the cache
FOLD = 8  # layers of scores, of which the highest are looked at first
BESIDE = 16  # more than asked for are scored without rounding
HALF = 2.0**-8  # what rounding to bfloat16, twice, may take off a number, as a share
CELL_TEXTS = 10_000  # fewer are searched exactly in any case
MERGED = 4_096  # lists merged at once
PROBED = 16  # of so many cells one is searched
WHOLE = 2.0**-22  # the same of float32, for each number of a vector


@dataclass(frozen=True)
class Lists:
    """
    For each query the nearest texts, nearest first; of equal scores the smaller number first.

    Args:
        score_QK: float32; -inf fills.
        text_QK: uint64 numbers of texts; 0 fills.
        group_QK: uint64 groups of the texts; a list holds each group once.
    """

    score_QK: NDArray[np.float32]
    text_QK: NDArray[np.uint64]
    group_QK: NDArray[np.uint64]

    @classmethod
    def none(cls, queries: int) -> "Lists":
        """Lists of nothing."""
        return cls(*(np.zeros((queries, 0), kind) for kind in (np.float32, np.uint64, np.uint64)))

    def merged(self, other: "Lists", k: int) -> "Lists":
        """The `k` nearest of both: as if both had been searched at once, where each holds `k` or all."""
        parts = [self._part(at)._merged(other._part(at), k) for at in range(0, len(self.score_QK), MERGED)]
        parts = parts or [self]
        return Lists(*(np.concatenate(column) for column in zip(*(vars(part).values() for part in parts), strict=True)))

    def _merged(self, other: "Lists", k: int) -> "Lists":
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        both = Lists(*(np.concatenate(parts, axis=1) for parts in pairs))
        if self.score_QK.shape[1] and other.score_QK.shape[1]:
            both = both._taken(np.argsort(both.text_QK, axis=1, kind="stable"))._nearest_first()
        again_QK = again(both.group_QK) & (both.score_QK > -np.inf)
        if again_QK.any():
            both = replace(both, score_QK=np.where(again_QK, np.float32(-np.inf), both.score_QK))._nearest_first()
        return both.head(k)

    def _part(self, at: int) -> "Lists":
        return Lists(*(part[at : at + MERGED] for part in vars(self).values()))

    def head(self, k: int) -> "Lists":
        """The first `k` of each list; what fills has no number."""
        score_QK = self.score_QK[:, :k]
        number = lambda number_QK: np.where(score_QK > -np.inf, number_QK[:, :k], np.uint64(0))
        return Lists(score_QK, number(self.text_QK), number(self.group_QK))

    def once(self) -> "Lists":
        """The same order, a group's first text alone."""
        score_QK = np.where(again(self.group_QK), np.float32(-np.inf), self.score_QK)
        order_QK = np.argsort(score_QK == -np.inf, axis=1, kind="stable")
        return replace(self, score_QK=score_QK)._taken(order_QK).head(score_QK.shape[1])

    def _nearest_first(self) -> "Lists":
        return self._taken(np.argsort(np.negative(self.score_QK), axis=1, kind="stable"))

    def _taken(self, order_QK: NDArray[np.int64]) -> "Lists":
        return Lists(*(np.take_along_axis(part, order_QK, axis=1) for part in vars(self).values()))


def again(group_QK: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Whether a group stands farther to the left already."""
    order_QK = np.argsort(group_QK, axis=1, kind="stable")
    sorted_QK = np.take_along_axis(group_QK, order_QK, axis=1)
    same_QK = np.zeros(group_QK.shape, bool)
    same_QK[:, 1:] = sorted_QK[:, 1:] == sorted_QK[:, :-1]
    again_QK = np.zeros_like(same_QK)
    np.put_along_axis(again_QK, order_QK, same_QK, axis=1)
    return again_QK


def unit(vector_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors of length 1, whose inner product is the cosine; one that is 0 stays so."""
    length_N1 = np.linalg.norm(vector_ND, axis=1, keepdims=True)
    return vector_ND / np.maximum(length_N1, np.finfo(np.float32).tiny)


def exact(
    query_QD: NDArray[np.float32], text_ND: NDArray[np.float32], k: int, rounded: bool | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """
    The `k` texts of the highest inner products, to the rounding of float32.

    Memory is bounded by `CELLS`, whatever the number of queries.

    Args:
        rounded: whether to look at rounded numbers first; None: where the processor knows them.
    Returns:
        Scores and rows, [Q, k], highest first; of fewer texts than `k`, all.
    """
    query, text = torch.from_numpy(query_QD), torch.from_numpy(text_ND)
    k = min(k, len(text_ND))
    score_QK, row_QK = np.empty((len(query), k), np.float32), np.empty((len(query), k), np.int64)
    looks = [_Rounded(text)] if (knows_half() if rounded is None else rounded) else []
    block = max(1, CELLS // max(1, len(text_ND)))
    for start in range(0, len(query), block):
        query_BD = query[start : start + block]
        if looks:
            score_BK, row_BK, sure_B = looks[0].top(query_BD, k)
            left_B = (~sure_B).nonzero().flatten()
            if len(left_B) > len(query_BD) // 4:
                looks = []  # texts lie too close together for rounding to help
            if len(left_B):
                score_BK[left_B], row_BK[left_B] = _whole(query_BD[left_B], text, k)
        else:
            score_BK, row_BK = _whole(query_BD, text, k)
        score_QK[start : start + block], row_QK[start : start + block] = score_BK.numpy(), row_BK.numpy()
    return score_QK, row_QK


def knows_half() -> bool:
    """Whether this processor multiplies bfloat16."""
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, lambda: False)() for name in asked)


class _Rounded:
    """Texts as bfloat16, and how far an inner product with them may be off."""

    def __init__(self, text_ND: Tensor) -> None:
        self.text_ND, self.half_ND = text_ND, text_ND.bfloat16()
        self.longest = float(self.half_ND.float().norm(dim=1).max()) if len(text_ND) else 0.0
        self.off = float((text_ND - self.half_ND.float()).norm(dim=1).max()) if len(text_ND) else 0.0

    def top(self, query_BD: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """
        Scores and rows of the `k` best, [B, k], and which queries are sure to have no better, [B].

        By Cauchy and Schwarz |q x - q' x'| <= |q| |x - x'| + |q - q'| |x'|, where q' and x' are rounded.
        """
        half_BD = query_BD.bfloat16()
        look_BN = half_BD @ self.half_ND.T
        m = min(k + k // 4 + BESIDE, look_BN.shape[1])
        look_BM, row_BM = top(look_BN, m)
        score_BK, row_BK = _scored(query_BD, self.text_ND, row_BM, k)
        if m == look_BN.shape[1]:
            return score_BK, row_BK, torch.ones(len(query_BD), dtype=torch.bool)
        length_B, off_B = query_BD.norm(dim=1), (query_BD - half_BD.float()).norm(dim=1)
        limit_B = look_BM[:, -1].float()  # nothing outside was seen above it
        unseen_B = limit_B + limit_B.abs() * HALF + length_B * self.off + off_B * self.longest
        unseen_B += length_B * self.longest * WHOLE * query_BD.shape[1]
        return score_BK, row_BK, unseen_B < score_BK[:, -1]


def _whole(query_BD: Tensor, text_ND: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Scores and rows of the `k` best by float32, [B, k]."""
    _, row_BM = top(query_BD @ text_ND.T, min(k + BESIDE, len(text_ND)))
    return _scored(query_BD, text_ND, row_BM, k)


def _scored(query_BD: Tensor, text_ND: Tensor, row_BM: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Of some rows of each query the `k` best; each pair scored by itself, so that a score is the same in any block."""
    row_BM = row_BM.sort(dim=1).values
    score_BM = torch.empty(row_BM.shape)
    step = max(1, NEAR // max(1, row_BM.shape[1] * text_ND.shape[1]))
    for at in range(0, len(query_BD), step):
        found_BMD = text_ND[row_BM[at : at + step]]
        score_BM[at : at + step] = torch.bmm(found_BMD, query_BD[at : at + step, :, None])[:, :, 0]
    score_BM, order_BM = score_BM.sort(dim=1, descending=True, stable=True)
    return score_BM[:, :k], row_BM.gather(1, order_BM[:, :k])


def top(score_BN: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """
    The `m` highest scores and their columns, [B, m], highest first.

    Columns are laid in `FOLD` layers; what is among the highest lies at a place whose highest is.
    """
    places = score_BN.shape[1] // FOLD
    if places < 2 * m:
        value_BM, column_BM = score_BN.topk(m, dim=1)
        return value_BM, column_BM
    highest_BG = score_BN[:, : places * FOLD].unflatten(1, (FOLD, places)).amax(dim=1)
    place_BM = highest_BG.topk(m, dim=1, sorted=False).indices
    layered_BC = (place_BM[:, None, :] + torch.arange(FOLD)[:, None] * places).flatten(1)
    rest_R = torch.arange(places * FOLD, score_BN.shape[1]).expand(len(score_BN), -1)
    column_BC = torch.cat([layered_BC, rest_R], dim=1)
    value_BM, at_BM = score_BN.gather(1, column_BC).topk(m, dim=1)
    return value_BM, column_BC.gather(1, at_BM)


def listed(
    score_QK: NDArray[np.float32], row_QK: NDArray[np.int64], text_N: NDArray[np.uint64], group_N: NDArray[np.uint64]
) -> Lists:
    """What a search of some texts found, as lists; rows of -1 and scores of -inf fill."""
    there_QK = (row_QK >= 0) & (score_QK > -np.inf)
    row_QK = np.where(there_QK, row_QK, 0)
    number = lambda column_N: np.where(there_QK, column_N[row_QK], np.uint64(0))
    return Lists(np.where(there_QK, score_QK, np.float32(-np.inf)), number(text_N), number(group_N))


def centres(text_ND: NDArray[np.float32]) -> NDArray[np.float32]:
    """Centres of cells, [C, D]: k-means from a fixed start, four times the root of the number of texts."""
    import faiss

    count = int(4 * np.sqrt(len(text_ND)))
    means = faiss.Kmeans(text_ND.shape[1], count, niter=10, spherical=True, seed=1, max_points_per_centroid=64)
    means.train(text_ND)
    return np.asarray(means.centroids, np.float32)


def by_cells(
    query_QD: NDArray[np.float32], text_ND: NDArray[np.float32], centre_CD: NDArray[np.float32], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """
    As `exact`, but only texts in the cells nearest to a query are looked at, one in `PROBED`; some are missed.

    Returns:
        Scores and rows, [Q, k]; -inf and -1 where the cells hold fewer.
    """
    import faiss

    ball = faiss.IndexFlatIP(text_ND.shape[1])
    ball.add(centre_CD)
    index = faiss.IndexIVFFlat(ball, text_ND.shape[1], len(centre_CD), faiss.METRIC_INNER_PRODUCT)
    index.nprobe = max(1, len(centre_CD) // PROBED)
    index.add(text_ND)
    score_QK, row_QK = index.search(query_QD, min(k, len(text_ND)))
    return np.where(row_QK >= 0, score_QK, np.float32(-np.inf)), row_QK
