"""Rewriting by a model folder or a registered name."""

from flows.registry import opened
from models.decoding import Drawing
from models.rewriting import Rewrites, rewritten


def rewrites(
    model: str,
    text: str,
    *,
    store: str = ".firth",
    most: int = 10,
    drawing: Drawing | None = None,
    seed: int = 0,
    tracking: str | None = None,
) -> Rewrites:
    """
    Other ways to say a text, the most similar first.

    Args:
        model: a model folder or a registered name; it was trained with a term that generates.
    Raises:
        FolderError: no model, or one that does not write.
        RewriteError: the text says nothing, or nothing else was found.
    """
    return rewritten(opened(model, store, tracking), text, most, drawing, seed)
