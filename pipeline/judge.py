"""A cross-encoder that reads an anchor and a mined text together, and whose scores the rules then look at."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from models.recipe import Negatives, RecipeError, digest, file_digest
from pipeline.gathered import gathered
from pipeline.mine_search import Lists
from pipeline.ragged import Flags
from pipeline.store import Piece, Store

if TYPE_CHECKING:
    from pipeline.mine import Anchors

FILES = ("config.json", "model.safetensors", "tokenizer.json")
READ = 64  # pairs read together


def check(folder: str) -> None:
    """
    Find out before any work whether a folder holds a cross-encoder of one score.

    Raises:
        RecipeError: a file is missing, or the model has several scores.
    """
    missing = [name for name in FILES if not (Path(folder) / name).is_file()]
    if missing:
        raise RecipeError(
            f'negatives.judge is "{folder}": no {", ".join(missing)}; give the folder of a cross-encoder, as '
            "`save_pretrained` of AutoModelForSequenceClassification and its tokenizer writes it"
        )
    from transformers import AutoConfig

    labels = AutoConfig.from_pretrained(folder, local_files_only=True).num_labels
    if labels != 1:
        raise RecipeError(
            f'negatives.judge is "{folder}", which has {labels} labels; should have one, how right a text is'
        )


def key(folder: str) -> str:
    """Digest of the files that decide its scores; empty: no judge."""
    return digest([file_digest(Path(folder) / name) for name in FILES]) if folder else ""


def judged(
    store: Store,
    sentences: Mapping[int, Piece],
    rules: Negatives,
    number: int,
    anchors: "Anchors",
    lists: Lists,
    barred_QK: Flags,
) -> tuple[Lists, NDArray[np.float32]]:
    """
    The nearest texts that are not barred, with the judge's scores in its order; and the lowest of the right answers'.

    Args:
        barred_QK: texts that need no judgement.
    """
    near_QK = (lists.score_QK > -np.inf) & ~barred_QK
    near_QK &= np.cumsum(near_QK, axis=1) <= rules.last
    own = store.read(sentences[number], ["text"])["text"]
    asked_Q = own.gather(anchors.row_Q).to_list()
    query_N, place_N = near_QK.nonzero()
    score_QK = np.full(near_QK.shape, -np.inf, np.float32)
    if len(query_N):
        texts = gathered(store, sentences, "text", pl.Series(lists.text_QK[query_N, place_N])).to_list()
        score_QK[query_N, place_N] = scores(rules.judge, [asked_Q[q] for q in query_N], texts)
    right_Q = np.full(len(asked_Q), np.inf, np.float32)
    answers = own.gather(anchors.row_P).to_list()
    if answers:
        np.minimum.at(right_Q, anchors.at_P, scores(rules.judge, [asked_Q[q] for q in anchors.at_P], answers))
    return Lists(score_QK, lists.text_QK, lists.group_QK).merged(Lists.none(len(asked_Q)), near_QK.shape[1]), right_Q


@lru_cache(maxsize=1)
def _opened(folder: str) -> tuple[Any, Any]:
    """Tokenizer and model; one process reads many shards."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return tokenizer, AutoModelForSequenceClassification.from_pretrained(folder, local_files_only=True).eval()


def scores(folder: str, left: list[str], right: list[str]) -> NDArray[np.float32]:
    """How right each text is for each anchor, pair by pair."""
    import torch

    tokenizer, model = _opened(folder)
    order = np.argsort([len(one) + len(other) for one, other in zip(left, right, strict=True)], kind="stable")
    found = np.empty(len(left), np.float32)
    with torch.inference_mode():
        for at in range(0, len(order), READ):
            some = order[at : at + READ]
            read = tokenizer(
                [left[i] for i in some], [right[i] for i in some], padding=True, truncation=True, return_tensors="pt"
            )
            found[some] = model(**read).logits[:, 0].numpy()
    return found
