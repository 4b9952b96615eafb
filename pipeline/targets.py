"""What a row is to generate: the clean tokens of its answer, cut where the encoder has no room for both."""

import json
from pathlib import Path

import polars as pl

from models.recipe import Recipe

AROUND = 3  # first word, the last one behind the source, the last one behind the target
COUNTED_ON = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl")  # kinds whose positions begin behind the padding


def room(recipe: Recipe) -> int:
    """
    Most tokens of source and target together that all towers which generate have positions for.

    Raises:
        RecipeError: an encoder's folder cannot be used.
    """
    towers = {term.anchor or recipe.encoder.towers[0] for term in recipe.terms if term.generates}
    return min(_positions(recipe.encoder.tower(tower)) for tower in towers) - AROUND


def _positions(encoder: dict[str, object]) -> int:
    path = str(encoder.get("path") or "")
    if not path:
        return int(str(encoder["positions"]))
    from models.pretrained import local  # torch, which data workers do without

    config = json.loads((Path(local(path)) / "config.json").read_text(encoding="utf-8"))
    behind = 1 + config.get("pad_token_id", 1) if config.get("model_type") in COUNTED_ON else 0
    return int(config.get("max_position_embeddings", 2**31 - 1)) - behind


def cut(source: pl.Series, target: pl.Series, room: int) -> tuple[pl.Series, int]:
    """
    Targets that have room behind their sources, and how many were cut.

    Args:
        source, target: tokens, row by row.
        room: most tokens of both together.
    """
    lengths = pl.DataFrame({"target": target, "free": room - source.list.len().cast(pl.Int64)})
    free = pl.col("free").clip(lower_bound=0)
    held = lengths.select(pl.col("target").list.head(free)).to_series()
    return held, int((held.list.len() < target.list.len()).sum())
