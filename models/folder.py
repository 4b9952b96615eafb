"""
A model folder: weights (safetensors), tokenizer, recipe, lineage and model card.

A transformer itself lies beside the other weights in the files of the `transformers` library; see `models.export`.
Nothing in a folder is executed when it is read.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import load_model, save_model
from tokenizers import Tokenizer
from torch import nn

from models import export
from models.closing import plain
from models.method import Method
from models.model import Model, ready
from models.ngram import Ngram
from models.recipe import Recipe, parse
from models.resolving import resolve
from models.transformer import Transformer
from models.trouble import FolderError

WEIGHTS, TOKENIZER, RECIPE, LINEAGE, CARD = (
    "weights.safetensors",
    "tokenizer.json",
    "recipe.json",
    "lineage.json",
    "README.md",
)
COUNTS = "counts.parquet"  # in place of weights, where the encoder counts


def save(folder: Path, method: Method, tokenizer: str, lineage: Mapping[str, Any], card: str) -> None:
    """
    Write a model folder; `tokenizer` is its JSON. Files that are there are replaced.

    What a run has beside the model, a momentum queue, is left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not method.recipe.counting:  # whoever counted has written `COUNTS`
        save_model(_own(method), str(folder / WEIGHTS))
    tokenizer = plain(tokenizer)
    if method.recipe.encoder.kind == "transformer":
        export.write(folder, method, tokenizer)
        tokenizer = export.tokenizer_for(method.recipe, tokenizer)
    (folder / TOKENIZER).write_text(tokenizer, encoding="utf-8")
    (folder / RECIPE).write_text(method.recipe.model_dump_json(indent=1), encoding="utf-8")
    (folder / LINEAGE).write_text(json.dumps(dict(lineage), indent=1, ensure_ascii=False), encoding="utf-8")
    (folder / CARD).write_text(card, encoding="utf-8")


def load(path: str | Path) -> Model:
    """
    The model in a folder, ready to encode.

    Raises:
        FolderError: a file is missing or damaged; the message names it.
    """
    folder = Path(path)
    _complain_of(folder, [name for name in (TOKENIZER, RECIPE, LINEAGE) if not (folder / name).is_file()])
    try:
        said = parse(json.loads((folder / RECIPE).read_text(encoding="utf-8")))
        numbers = COUNTS if said.counting else WEIGHTS
        _complain_of(folder, [] if (folder / numbers).is_file() else [numbers])
        bodies = export.bodies(said, folder)
        files = [place / name for place in bodies.values() for name in (export.CONFIG, export.BODY)]
        _complain_of(folder, [str(file.relative_to(folder)) for file in files if not file.is_file()])
        recipe = resolve(said, folder if bodies else None)
        words = plain((folder / TOKENIZER).read_text(encoding="utf-8"))
        lineage = json.loads((folder / LINEAGE).read_text(encoding="utf-8"))
        method = _empty(recipe, Tokenizer.from_str(words), folder)
        if recipe.counting:
            cast(Ngram, method.tower(recipe.encoder.towers[0])).read(folder / COUNTS)
        else:
            load_model(_own(method), str(folder / WEIGHTS))
        for name, place in bodies.items():
            _check_whole(cast(Transformer, method.tower(name)).whole, place / export.BODY)
    except FolderError:
        raise
    except Exception as error:  # safetensors and tokenizers raise classes of their own
        cause = " ".join(line.strip() for line in str(error).splitlines()[:2])  # torch lists every tensor
        raise FolderError(f"{folder} is damaged: {cause}; copy it anew or train it again") from error
    return ready(method, words, lineage)


def _complain_of(folder: Path, missing: list[str]) -> None:
    if missing:
        raise FolderError(
            f"{folder} is no model folder: no {', '.join(missing)}; give the folder that `firth retrain` names"
        )


def _own(method: Method) -> nn.Module:
    """What lies in our own file: the towers, of a transformer its head alone, and what learns beside them."""
    rest = lambda tower: nn.ModuleDict({"head": tower.head}) if isinstance(tower, Transformer) else tower
    towers = {name: rest(method.tower(name)) for name in method.recipe.encoder.towers}
    beside = {"contexts": method.contexts, "similarities": method.similarities, "told": method.told}
    return nn.ModuleDict({"towers": nn.ModuleDict(towers), **beside})


def _check_whole(body: nn.Module, file: Path) -> None:
    """The library makes up what a file lacks; here that is damage. Shared numbers need to lie there once."""
    with safe_open(str(file), framework="pt") as numbers:
        there = set(numbers.keys())
    known = {value.data_ptr() for name, value in body.state_dict().items() if name in there}
    lacking = [name for name, value in body.state_dict().items() if value.data_ptr() not in known]
    if lacking:
        raise ValueError(f"{file.name} lacks {', '.join(lacking[:3])}")


def _empty(recipe: Recipe, tokenizer: Tokenizer, folder: Path) -> Method:
    """A method of the right shapes; its numbers come from the file, a transformer's are there already."""
    tables: dict[str, torch.Tensor] = {}
    if recipe.counting:
        return Method(recipe, 1 + max(tokenizer.get_vocab().values()))  # a ready-made one may leave numbers out
    with safe_open(str(folder / WEIGHTS), framework="pt") as weights:
        shapes = {name: weights.get_slice(name).get_shape() for name in weights.keys()}  # noqa: SIM118  no iterator
    for tower in recipe.encoder.towers:
        table = str(recipe.encoder.tower(tower).get("table", ""))
        shape = shapes.get(f"towers.{tower}.words.weight")
        if table and table not in recipe.encoder.towers and shape:
            tables[table] = torch.zeros(*shape)
    words = tokenizer.get_vocab_size()
    base = folder if recipe.encoder.kind == "transformer" else None
    method = Method(recipe, words, tables, torch.zeros(words), tokenizer, base)
    method.queues = nn.ModuleDict()
    return method
