"""
Questions with their answers as examples of unlike sizes, and batches that hold them whole.

An example is the question once for each of its right answers, then these, then its wrong answers. What a batch has no
room for stands in another one; the rest is filled up. Every epoch has equally many batches, whatever its order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappush, heapreplace

import numpy as np
import polars as pl

from pipeline.gathered import numbered
from pipeline.merged import among
from pipeline.runs import fillers
from pipeline.tables import ANCHOR, BATCHES, CANDIDATE

WINDOW = 32  # batches that are being filled at once; those of a whole epoch would have to be in memory
SPARE = 16  # one batch more for so many, so that a drawn order nearly always fits


def shard_rows(
    most: int,
    sentences: pl.DataFrame,
    tokens: pl.DataFrame,
    pairs: pl.DataFrame,
    held_out: pl.Series,
    entropy: tuple[int, int, int],
    mined: pl.DataFrame | None = None,
    whole: int = 0,
) -> tuple[pl.DataFrame, Mapping[str, int]]:
    """
    A shard's examples, question by question.

    What repeats a held-out text is left out: an answer by itself, a question with all of its answers. So is a wrong
    answer that says the same as a right one of its question, and a question that is left without either kind.

    Args:
        most: wrong answers of a question; of more, a sample without replacement.
        sentences, tokens, pairs: the shard's, as `pairs.qa` makes the last.
        held_out: groups of held-out texts.
        entropy: seed, epoch and number of the shard, on which alone the sample depends.
        mined: the questions' mined negatives, as `mined.rows` gives them: wrong answers beside a question's own.
        whole: a question with fewer mined ones is left out.
    Returns:
        One row for each of an example's: text, tokens, group, view (0 question, 1 right, 2 wrong answer), `at` (its
        number in the example), `rights` and `size` (of the example) and `run` (number of the example); and counts.
    """
    shard = entropy[-1]
    texts = sentences.with_row_index("row").with_columns(repeats=among(sentences["group"], held_out))
    with_mined = mined["anchor"].unique() if mined is not None else pl.Series([], dtype=pl.UInt32)
    answers, counts = _answers(texts, pairs, most, with_mined)
    if mined is not None and whole:
        enough = mined.group_by("anchor").len().filter(pl.col("len") >= whole)["anchor"]
        has_enough = pl.col("question").is_in(enough.implode())
        counts["negatives_too_few"] = answers.filter(~has_enough)["question"].n_unique()
        answers = answers.filter(has_enough)
    answers, counts["wrong_beyond_most"] = _sampled(answers, most, np.random.default_rng([*entropy, 1]))
    asked = answers.filter(pl.col("view") == 1).with_columns(row="question", view=pl.lit(0, pl.UInt8))
    own = pl.concat([asked, answers]).sort("question", "view", "row", maintain_order=True)
    used = own["row"].n_unique()
    rows = own.select(
        "question",
        "view",
        text=numbered(pl.col("row"), shard),
        tokens=tokens["tokens"].gather(own["row"]),
        group=sentences["group"].gather(own["row"]),
    )
    rows = rows if mined is None else _with_mined(rows, mined)
    rows = rows.with_columns(
        at=pl.int_range(pl.len(), dtype=pl.UInt32).over("question"),
        rights=(pl.col("view") == 1).sum().over("question").cast(pl.UInt32),
        size=pl.len().over("question").cast(pl.UInt32),
        run=(pl.col("question").rle_id()).cast(pl.UInt32),
    )
    train = texts.filter(~pl.col("held_out"))
    counts["repeats_of_held_out"] = int(train["repeats"].sum())
    counts["in_no_example"] = len(train) - used - counts["repeats_of_held_out"]
    return rows.select("text", "tokens", "group", "view", "at", "rights", "size", "run"), counts


def _with_mined(rows: pl.DataFrame, mined: pl.DataFrame) -> pl.DataFrame:
    """Mined negatives behind the wrong answers of the questions that are there; what a question has already, once."""
    question = pl.col("anchor").cast(rows.schema["question"])
    more = mined.select("text", "tokens", "group", question=question, view=pl.lit(2, pl.UInt8)).select(rows.columns)
    more = more.join(rows, on="question", how="semi", maintain_order="left")
    more = more.join(rows, on=["question", "group"], how="anti", maintain_order="left")
    return pl.concat([rows, more]).sort("question", "view", maintain_order=True)


def _answers(
    texts: pl.DataFrame, pairs: pl.DataFrame, most: int, mined: pl.Series
) -> tuple[pl.DataFrame, dict[str, int]]:
    """
    Answers of training questions (question, row, view) that have both kinds, and why others are left out.

    Args:
        most: 0: a question needs no wrong answer.
        mined: questions that have mined ones.
    """
    known = texts.select("row", "group", pl.col("repeats") | pl.col("held_out"))  # an answer may be left out alone
    wrong = pairs.unique("anchor", maintain_order=True).select("anchor", row="wrong").explode("row", empty_as_null=True)
    each = lambda frame, view: frame.drop_nulls("row").select(question="anchor", row="row", view=pl.lit(view, pl.UInt8))
    both = pl.concat([each(pairs.select("anchor", row="positive"), 1), each(wrong, 2)])
    both = both.join(known, on="row", how="left", maintain_order="left")
    asked = texts.filter(~pl.col("held_out") & pl.col("label").is_null()).select(question="row", is_repeat="repeats")
    both = both.join(asked, on="question", how="inner", maintain_order="left")
    is_right = pl.col("view") == 1
    right = both.filter(is_right).select("question", "group").unique()
    same = both.filter(~is_right).join(right, on=["question", "group"], how="semi")
    both = both.join(same.select("question", "row"), on=["question", "row"], how="anti", maintain_order="left")
    counts = {
        "no_right": len(asked) - right["question"].n_unique(),
        "no_wrong": right["question"].n_unique() - both.filter(~is_right)["question"].n_unique(),
        "wrong_is_right": len(same),
    }
    # A question without a right answer has no pair, so what is counted as wrong belongs to the others.
    kept = both.filter(~pl.col("is_repeat") & ~pl.col("repeats"))
    has_wrong = (~is_right).any().over("question") | pl.col("question").is_in(mined.implode())
    kept = kept.filter(is_right.any().over("question") & (has_wrong if most else pl.lit(True)))
    return kept.select("question", "row", "view"), counts


def _sampled(answers: pl.DataFrame, most: int, draw: np.random.Generator) -> tuple[pl.DataFrame, int]:
    """At most so many wrong answers of each question, and how many are left out."""
    answers = answers.sort("question", "view", "row")
    drawn = answers.with_columns(drawn=pl.Series(draw.random(len(answers)), dtype=pl.Float64))
    order = pl.col("drawn").rank("ordinal").over("question", "view")
    kept = drawn.filter((pl.col("view") == 1) | (order <= most))
    return kept.drop("drawn"), len(answers) - len(kept)


def packed(buckets: Iterable[pl.DataFrame], size_E: np.ndarray, rows: int) -> Iterator[pl.DataFrame]:
    """
    Whole batches of table `batches`, some at a time.

    Args:
        buckets: rows as `shard_rows` gives them, in drawn order.
        size_E: rows of each example, in the same order; none has more than a batch.
        rows: of a batch.
    """
    batches = planned(size_E.tolist(), rows)
    batch_E = np.empty(len(size_E), np.int64)
    for number, members in enumerate(batches):
        batch_E[members] = number
    last_K = np.array([members[-1] for members in batches])
    waiting, seen, written = pl.DataFrame(), 0, 0
    for bucket in buckets:
        example = bucket.select((pl.col("at") == 0).cum_sum().cast(pl.Int64) - 1 + seen).to_series()
        numbered = bucket.with_columns(example.alias("example"), batch=pl.Series(batch_E[example.to_numpy()]))
        waiting = numbered if waiting.is_empty() else pl.concat([waiting, numbered])
        seen = int(example[-1]) + 1
        ready = int(np.searchsorted(last_K, seen))
        if ready > written:
            yield _filled(waiting.filter(pl.col("batch") < ready), rows)
            waiting, written = waiting.filter(pl.col("batch") >= ready), ready


def _filled(examples: pl.DataFrame, rows: int) -> pl.DataFrame:
    """Batches with their answers, filled up to equal size."""
    frame = examples.sort("batch", "example", "at").with_columns(row=pl.int_range(pl.len()).over("batch"))
    first, nothing = pl.col("row") - pl.col("at"), pl.lit([], BATCHES.columns["answers"].type)
    is_question = pl.col("view") == 0
    wrong = pl.int_ranges(first + 2 * pl.col("rights"), first + pl.col("size"), dtype=pl.UInt16)
    frame = frame.with_columns(
        side=pl.when(is_question).then(ANCHOR).otherwise(CANDIDATE).cast(pl.UInt8),
        answers=pl.when(is_question)
        .then(pl.concat_list((pl.col("row") + pl.col("rights")).cast(pl.UInt16)))
        .otherwise(nothing),
        hard=pl.when(is_question).then(wrong).otherwise(nothing),
    )
    batches = BATCHES.check(frame)
    free = frame.group_by("batch", maintain_order=True).agg(free=rows - pl.len())
    added = free["batch"].gather(np.repeat(np.arange(len(free)), free["free"].to_numpy()))
    whole = pl.concat([batches, fillers(batches.columns, len(added))])
    return whole[np.argsort(pl.concat([frame["batch"], added]).to_numpy(), kind="stable")]


def planned(sizes: Sequence[int], rows: int) -> list[list[int]]:
    """
    Which examples stand together in a batch: numbers of examples, each list ascending, lists in order of their last.

    As many lists as the sizes alone say, in whatever order they come: as few as packing the largest first needs and one
    in `SPARE` more. Examples are packed as they come, into few batches at a time; where that takes more, into any
    batch; and where that does, the largest first.
    """
    falling = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    tightest = _best_fit(sizes, falling, rows)
    wanted = min(len(tightest) + len(tightest) // SPARE, len(sizes))
    found = _first_fit(sizes, rows)
    if len(found) > wanted:
        found = _best_fit(sizes, range(len(sizes)), rows)
    found = [sorted(members) for members in (found if len(found) <= wanted else tightest)]
    longest = [(-len(members), number) for number, members in enumerate(found)]
    heapify(longest)
    while len(found) < wanted:
        most = longest[0][1]
        half = len(found[most]) // 2
        found += [found[most][half:]]
        found[most] = found[most][:half]
        heapreplace(longest, (-half, most))
        heappush(longest, (-len(found[-1]), len(found) - 1))
    return sorted(found, key=lambda members: members[-1])


def _first_fit(sizes: Sequence[int], rows: int) -> list[list[int]]:
    """Each into the first of few open batches that has room; of too many the oldest is closed."""
    done: list[list[int]] = []
    held: list[list[int]] = []
    free: list[int] = []
    for number, size in enumerate(sizes):
        at = next((at for at, room in enumerate(free) if room >= size), None)
        if at is None:
            if len(free) == WINDOW:
                done.append(held.pop(0))
                free.pop(0)
            held.append([])
            free.append(rows)
            at = len(free) - 1
        held[at].append(number)
        free[at] -= size
        if free[at] == 0:
            done.append(held.pop(at))
            free.pop(at)
    return done + held


def _best_fit(sizes: Sequence[int], order: Iterable[int], rows: int) -> list[list[int]]:
    """Each into the batch that it leaves the least room in."""
    batches: list[list[int]] = []
    with_room: dict[int, list[int]] = {}
    rooms = 0  # bit r: there is a batch with room for r rows
    for number in order:
        size = sizes[number]
        fitting = rooms >> size
        if fitting:
            room = size + (fitting & -fitting).bit_length() - 1
            batch = with_room[room].pop()
            if not with_room[room]:
                rooms ^= 1 << room
        else:
            room, batch = rows, len(batches)
            batches.append([])
        batches[batch].append(number)
        if left := room - size:
            with_room.setdefault(left, []).append(batch)
            rooms |= 1 << left
    return batches
