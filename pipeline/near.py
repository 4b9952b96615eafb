"""
Near repeats: texts of which most pieces of some characters are the same.

Each shard keeps a small sketch of its texts, so a grown corpus sketches its new shards alone. Texts with the same
digest of one of their bands are candidates; the share of pieces that two candidates have in common, of all that either
has, is then counted, so what a sketch takes for alike by mistake is not. One column of sketches is in memory at a time,
and the texts of all candidates.

Source: Broder 1997 (min-wise digests); Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, 3.4 (bands).
"""

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.cluster import Progress, silent
from pipeline.corpus import normal
from pipeline.gathered import columns, numbered
from pipeline.manifest import Manifest, Stage, run
from pipeline.ragged import GOLDEN, offsets, spread
from pipeline.store import Piece, Store, piece_key
from pipeline.tables import ALIKE, Column, Table

SKETCHES_VERSION = 1
ALIKE_VERSION = 1
DRAWS = 128  # min-wise digests of a text
FOUND = 0.99  # least probability that two texts as alike as the threshold are candidates
SEED = 1
WINDOW = 4  # texts after it, in a band, with which one is compared; and the band's first
ROWS = 1_000  # texts that are sketched at once: their digests stay in the processor's cache
PAIRS = 10_000  # candidates that are compared at once
DIGEST = np.uint64(44)  # bits of a piece's digest that are compared; the others number texts or pairs
U32, U64 = pl.UInt32(), pl.UInt64()


def bands(threshold: float) -> tuple[int, int]:
    """
    How many bands of how many digests: the longest with which two texts that are `threshold` alike are candidates with
    probability `FOUND`, 1 - (1 - threshold ** digests) ** bands.
    """
    for size in range(DRAWS, 1, -1):
        count = DRAWS // size
        if 1 - (1 - threshold**size) ** count >= FOUND:
            return count, size
    return DRAWS, 1


def table(count: int) -> Table:
    """The contract of sketches with so many bands."""
    columns = {
        "group": Column(U64, "as in sentences, each once in a shard"),
        "row": Column(U32, "row in the shard's sentences: the first of the group"),
        "held_out": Column(pl.Boolean(), "whether a text of the group is held out"),
    }
    more = {band(number): Column(U32, "digest of this band") for number in range(count)}
    return Table("sketches", columns | more, sort=("group",))


def band(number: int) -> str:
    """Name of a band's column."""
    return f"band{number}"


def pieces(texts: pl.Series, size: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """
    Digests of all runs of `size` characters of each text's normal form, a shorter one being a run itself.

    Returns:
        The digests, one text behind the other, and where each text's begin and the last one's end.
    """
    forms = normal(texts).fill_null("")
    length_N = forms.str.len_chars().to_numpy().astype(np.int64)
    whole = "".join(forms.str.pad_end(size, "\0").to_list())
    code_T = np.frombuffer(whole.encode("utf-32-le"), dtype=np.uint32)
    count_N = np.maximum(length_N - size + 1, 1)
    offset_N = np.concatenate([[0], np.cumsum(count_N)])
    length_N = np.maximum(length_N, size)
    found_T = np.zeros(max(0, len(code_T) - size + 1), dtype=np.uint64)
    for step in range(size):  # of all runs, also those across two texts; texts' own ones are then picked
        found_T ^= code_T[step : step + len(found_T)]
        found_T *= GOLDEN
        found_T ^= found_T >> np.uint64(29)
    return found_T[spread(np.cumsum(length_N) - length_N, count_N)], offset_N


def sketch(texts: pl.Series, size: int, threshold: float) -> NDArray[np.uint32]:
    """A digest of each band of each text, [N, bands]."""
    count, width = bands(threshold)
    found_NB = np.zeros((len(texts), count), dtype=np.uint32)
    for start in range(0, len(texts), ROWS):
        found_P, offset_N = pieces(texts[start : start + ROWS], size)
        least_DN = least((found_P >> np.uint64(32)).astype(np.uint32), offset_N, count * width)
        found_NB[start : start + ROWS] = _mixed(least_DN.T.reshape(-1, count, width))
    return found_NB


def least(digest_P: NDArray[np.uint32], offset_N: NDArray[np.int64], draws: int) -> NDArray[np.uint32]:
    """
    The least digest of each text in so many orders, [draws, N]: of two texts they are equal with the probability that
    is the share of their digests that both have.

    Args:
        digest_P, offset_N: digests, one text behind the other, and where each text's begin and the last one's end.
    """
    draw = np.random.default_rng(SEED)
    times_D, plus_D = draw.integers(0, 1 << 32, size=(2, draws), dtype=np.uint32)
    found_DN, made_P = np.empty((draws, len(offset_N) - 1), np.uint32), np.empty_like(digest_P)
    for number in range(draws):
        np.multiply(digest_P, times_D[number] | np.uint32(1), out=made_P)
        np.add(made_P, plus_D[number], out=made_P)
        np.minimum.reduceat(made_P, offset_N[:-1], out=found_DN[number])
    return found_DN


def _mixed(least_NBW: NDArray[np.uint32]) -> NDArray[np.uint32]:
    found_NB = np.zeros(least_NBW.shape[:2], dtype=np.uint64)
    for at in range(least_NBW.shape[2]):
        found_NB = (found_NB ^ least_NBW[:, :, at]) * GOLDEN
        found_NB ^= found_NB >> np.uint64(32)
    return (found_NB >> np.uint64(32)).astype(np.uint32)


def found(store: Store, sentences: Manifest, size: int, threshold: float, progress: Progress = silent) -> Piece:
    """Table `alike` of a corpus: sketches of new shards, then all candidates compared. A second call only reads."""
    made = sketches(store, sentences.pieces, size, threshold, progress)
    return alike(store, sentences.pieces, size, threshold, made)


def make_sketches(store: Store, key: str, sentences: Piece, size: int, threshold: float) -> Piece:
    """Worker's part: the sketch of one shard."""
    started = time.time()
    rows = store.read(sentences, ["group", "held_out", "text"]).with_row_index("row")
    once = rows.group_by("group", maintain_order=True).agg(
        pl.col("row").first(), pl.col("text").first(), pl.col("held_out").any()
    )
    found_NB = sketch(once["text"], size, threshold)
    frame = once.drop("text").with_columns(pl.Series(band(n), found_NB[:, n]) for n in range(found_NB.shape[1]))
    return store.write(table(found_NB.shape[1]), key, frame, started=started, inputs=(sentences.key,))


def sketches(
    store: Store, sentences: Mapping[int, Piece], size: int, threshold: float, progress: Progress = silent
) -> Manifest:
    """The sketches of all shards, made where they are not there yet."""
    items = {number: ((piece.key,), piece) for number, piece in sentences.items()}
    make = partial(make_sketches, size=size, threshold=threshold)
    return run(store, Stage("sketches", SKETCHES_VERSION, make, [size, *bands(threshold)]), items, progress)


def alike(store: Store, sentences: Mapping[int, Piece], size: int, threshold: float, sketched: Manifest) -> Piece:
    """
    Pairs of groups whose texts are near repeats, as far as bands tell.

    Of the texts that a band holds to be the same each is compared with the next few and with the first.
    """
    inputs = tuple(sorted(piece.key for piece in sketched.pieces.values()))
    key = piece_key("alike", ALIKE_VERSION, [size, threshold], inputs)
    return store.once(
        ALIKE, key, inputs, lambda: compared(store, sentences, candidates(store, sketched), size, threshold)
    )


def candidates(store: Store, sketched: Manifest) -> pl.DataFrame:
    """Texts that may be near repeats: one and other (shard << 32 | row), each pair once."""
    names = [name for name in _names(store, sketched) if name.startswith("band")]
    empty = pl.DataFrame(schema={"one": U64, "other": U64})
    return pl.concat([empty, *(_band(store, sketched, name) for name in names)]).unique().sort("one", "other")


def _names(store: Store, sketched: Manifest) -> list[str]:
    first = next(iter(sketched.pieces.values()), None)
    return list(pl.read_parquet_schema(store.path(first.file))) if first else []


def _band(store: Store, sketched: Manifest, name: str) -> pl.DataFrame:
    rows = pl.concat(
        store.read(piece, ["group", "row", name]).select("group", text=numbered(pl.col("row"), number), band=name)
        for number, piece in sketched.pieces.items()
    )
    rows = rows.filter(pl.col("band").is_duplicated()).unique(["band", "group"], keep="first", maintain_order=True)
    rows = rows.sort("band", "group")
    last, text = pl.col("band"), pl.col("text")
    pairs = [
        rows.select(one=text, other=text.shift(-step), same=last == last.shift(-step)) for step in range(1, WINDOW + 1)
    ]
    pairs.append(rows.select(one=text, other=text.first().over("band"), same=text != text.first().over("band")))
    both = pl.concat(pairs).filter("same")
    return both.select(one=pl.min_horizontal("one", "other"), other=pl.max_horizontal("one", "other")).unique()


def compared(
    store: Store, sentences: Mapping[int, Piece], pairs: pl.DataFrame, size: int, threshold: float
) -> pl.DataFrame:
    """Table `alike`: of some candidates those whose texts are at least `threshold` alike."""
    texts = pl.concat([pairs["one"], pairs["other"]]).unique().sort()
    if not len(texts):
        return ALIKE.empty()
    group, text = columns(store, sentences, ["group", "text"], texts)
    at_one, at_other = (texts.search_sorted(pairs[name]).to_numpy() for name in ("one", "other"))
    share_P = shares(text, size, at_one, at_other)
    near = np.flatnonzero(share_P >= threshold)
    groups = group.to_numpy()
    one, other = groups[at_one[near]], groups[at_other[near]]
    found = {"one": np.minimum(one, other), "other": np.maximum(one, other), "share": share_P[near].astype(np.float32)}
    return pl.DataFrame(found).unique(["one", "other"], keep="first", maintain_order=True)


def shares(
    texts: pl.Series, size: int, one_P: NDArray[np.integer[Any]], other_P: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """
    How alike pairs of texts are: pieces that both have, of those that either has, 0 to 1 (Jaccard).

    Args:
        one_P, other_P: numbers of the texts of each pair.
    """
    found = np.zeros(len(one_P))
    for start in range(0, len(one_P), PAIRS):
        one, other = one_P[start : start + PAIRS], other_P[start : start + PAIRS]
        some, place = np.unique(np.concatenate([one, other]), return_inverse=True)
        held, first_N = _sets(texts.gather(some), size)
        count_N = np.diff(first_N)
        left, right = place[: len(one)], place[len(one) :]
        numbered = lambda at, held=held, first_N=first_N, count_N=count_N: (
            held[spread(first_N[at], count_N[at])]
            | np.repeat(np.arange(len(at), dtype=np.uint64) << DIGEST, count_N[at])
        )
        all_of = np.sort(np.concatenate([numbered(left), numbered(right)]))
        twice = all_of[1:][all_of[1:] == all_of[:-1]] >> DIGEST
        both = np.bincount(twice.astype(np.int64), minlength=len(one))
        found[start : start + PAIRS] = both / (count_N[left] + count_N[right] - both)
    return found


def _sets(texts: pl.Series, size: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Each text's pieces, once each, by 44 bits of their digests, one text behind the other; and where they begin."""
    found_P, offset_N = pieces(texts, size)
    row_P = np.repeat(np.arange(len(texts), dtype=np.uint64) << DIGEST, np.diff(offset_N))
    key = np.sort(row_P | found_P >> (np.uint64(64) - DIGEST))
    key = key[np.concatenate([[True], key[1:] != key[:-1]])] if len(key) else key
    row = (key >> DIGEST).astype(np.int64)
    return key & ((np.uint64(1) << DIGEST) - np.uint64(1)), offsets(np.bincount(row, minlength=len(texts)))
