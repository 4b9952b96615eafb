"""
What others read of a model folder: the files of `transformers` and of `sentence_transformers`, and how to use them.

What sentence-transformers has no module for (the state at a mask word, a template's vector taken off, a masked-word
model's head, several towers) is in `models/riding.py`, a copy of which lies in such a folder.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from models import riding
from models.closing import stopping
from models.method import Method
from models.pretrained import WITH_POOLER, quiet
from models.recipe import Recipe
from models.transformer import MASKED, Pooling, Transformer
from models.views import Frame
from models.wording import around, first_frame, named

CONFIG, BODY = "config.json", "model.safetensors"  # as transformers names them
RIDING = "firth_readout"
NATIVE = "sentence_transformers.models"  # the older name of its modules, which version 6 still reads
ACTIVATIONS = {"mlp": "torch.nn.modules.activation.Tanh", "linear": "torch.nn.modules.linear.Identity"}


@dataclass(frozen=True)
class Wanted:
    """What a tower's vector is after training."""

    pooling: str
    head: str
    takes_off: bool

    @property
    def rides(self) -> bool:
        """Whether sentence-transformers has no module for it."""
        return self.pooling == "mask" or self.takes_off or self.head in MASKED


@dataclass(frozen=True)
class Part:
    """A module of sentence-transformers: its class, settings and numbers."""

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, Tensor] = field(default_factory=dict)

    @property
    def rides(self) -> bool:
        """Whether it is one of ours."""
        return not self.kind.startswith(NATIVE)


def bodies(recipe: Recipe, folder: Path) -> dict[str, Path]:
    """Where each tower's transformer lies; empty: the encoder is none."""
    towers = recipe.encoder.towers if recipe.encoder.kind == "transformer" else ()
    return {name: folder / name if len(towers) > 1 else folder for name in towers}


def write(folder: Path, method: Method, tokenizer: str) -> None:
    """
    Write a transformer's files; of several towers each has a folder of its own.

    Args:
        method: of a recipe whose encoder is a transformer, built with its tokenizer.
        tokenizer: its JSON, nothing around a text.
    """
    recipe = method.recipe
    with _evaluating(method):
        for name, place in bodies(recipe, folder).items():
            _write_tower(place, cast(Transformer, method.tower(name)), tokenizer, recipe, wanted(recipe, name))
    if len(recipe.encoder.towers) > 1:
        _write_json(folder / "firth_towers.json", list(recipe.readout.towers))
        _write_modules(folder, [Part(f"{RIDING}.Towers")], recipe)


def tokenizer_for(recipe: Recipe, text: str) -> str:
    """The tokenizer.json of a transformer's folder: what stands around a text, and the full stop if it is wanted."""
    whole = around(text, first_frame(recipe, Tokenizer.from_str(text)))
    return stopping(whole) if recipe.readout.stop else whole


def wanted(recipe: Recipe, tower: str) -> Wanted:
    """The readout of a resolved recipe for one tower."""
    options, readout = recipe.encoder.tower(tower), recipe.readout
    first = recipe.view[0] if recipe.view else None
    takes_off = readout.denoise and first is not None and first.options.get("delta", "none") != "none"
    return Wanted(
        readout.pooling or str(options["pooling"]), str(options["head"]) if readout.head else "none", takes_off
    )


def most_tokens(recipe: Recipe, encoder: Transformer) -> int:
    """Where a text is cut: as the recipe says, or where the encoder ends."""
    return min(recipe.tokenizer.most_tokens, encoder.room())


def _write_tower(folder: Path, encoder: Transformer, text: str, recipe: Recipe, wants: Wanted) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with quiet():
        encoder.whole.save_pretrained(folder)
    between = first_frame(recipe, Tokenizer.from_str(text))
    most = most_tokens(recipe, encoder) + len(between)
    (folder / "tokenizer.json").write_text(tokenizer_for(recipe, text), encoding="utf-8")
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": most, **named(text)}
    words |= {"padding_side": "right", "truncation_side": "right", "clean_up_tokenization_spaces": False}
    _write_json(folder / "tokenizer_config.json", words | {"model_input_names": ["input_ids", "attention_mask"]})
    # In the older spelling, which new versions read too.
    bare = {"add_pooling_layer": False} if encoder.body.config.model_type in WITH_POOLER else {}
    more = {"config_args": {"output_hidden_states": True}} if wants.pooling == "mean-last-two" else {}
    settings = {"max_seq_length": most, "do_lower_case": False, "model_args": bare}
    _write_json(folder / "sentence_bert_config.json", settings | more)
    _write_modules(folder, [Part(f"{NATIVE}.Transformer"), *_parts(encoder, recipe, wants, between)], recipe)


def _parts(encoder: Transformer, recipe: Recipe, wants: Wanted, between: Frame) -> Iterator[Part]:
    """What makes a text's vector of the states of its tokens."""
    width, pooling = encoder.width, "mean" if wants.pooling == "mean-last-two" else wants.pooling
    if wants.pooling == "mean-last-two":
        layers = int(encoder.body.config.num_hidden_layers)
        settings = {"word_embedding_dimension": width, "layer_start": layers - 1, "num_hidden_layers": layers}
        yield Part(f"{NATIVE}.WeightedLayerPooling", settings, {"layer_weights": torch.ones(2)})
    if wants.rides:
        yield _readout(encoder, recipe, wants, between, pooling)
    else:
        modes = {"pooling_mode_cls_token": pooling == "first", "pooling_mode_mean_tokens": pooling == "mean"}
        yield Part(f"{NATIVE}.Pooling", {"word_embedding_dimension": width, **modes, "pooling_mode_max_tokens": False})
    if wants.head in ACTIVATIONS:
        settings = {"in_features": width, "out_features": width, "bias": True}
        numbers = {f"linear.{name.removeprefix('0.')}": value for name, value in encoder.head.state_dict().items()}
        yield Part(f"{NATIVE}.Dense", settings | {"activation_function": ACTIVATIONS[wants.head]}, numbers)
    if recipe.readout.normalise:
        yield Part(f"{NATIVE}.Normalize")


@torch.no_grad()
def _readout(encoder: Transformer, recipe: Recipe, wants: Wanted, between: Frame, pooling: str) -> Part:
    given: dict[str, Any] = {"before": len(between.before), "behind": len(between.behind), "mask": max(between.mask, 0)}
    transform: Any = encoder._transform() if wants.head in MASKED else None
    bare_ND = torch.zeros(0, encoder.width)
    if wants.takes_off:
        length_N = torch.arange(most_tokens(recipe, encoder) + 1)
        found = encoder._bare(length_N, torch.zeros_like(length_N), cast(Pooling, wants.pooling))
        assert found is not None
        bare_ND = transform(found) if transform else found
    if transform:
        given |= {"activation": encoder.body.config.hidden_act, "epsilon": transform.LayerNorm.eps}
    module = riding.Readout(encoder.width, pooling, lengths=len(bare_ND), **given)
    numbers = {"bare_ND": bare_ND}
    if transform:
        numbers |= {f"head.0.{name}": value for name, value in transform.dense.state_dict().items()}
        numbers |= {f"head.2.{name}": value for name, value in transform.LayerNorm.state_dict().items()}
    return Part(f"{RIDING}.Readout", module.config, numbers)


def _write_modules(folder: Path, parts: list[Part], recipe: Recipe) -> None:
    listed = []
    for number, part in enumerate(parts):
        path = f"{number}_{part.kind.rpartition('.')[2]}" if number else ""
        listed.append({"idx": number, "name": str(number), "path": path, "type": part.kind})
        if path:
            (folder / path).mkdir(exist_ok=True)
            _write_json(folder / path / CONFIG, part.settings)
        if part.numbers:
            save_file({name: value.contiguous() for name, value in part.numbers.items()}, str(folder / path / BODY))
    _write_json(folder / "modules.json", listed)
    compared = {term.similarity.kind for term in recipe.terms if term.similarity}
    _write_json(
        folder / "config_sentence_transformers.json", {"similarity_fn_name": "dot" if compared == {"dot"} else "cosine"}
    )
    if any(part.rides for part in parts):
        source = Path(riding.__file__).read_text(encoding="utf-8")
        (folder / f"{RIDING}.py").write_text(source, encoding="utf-8")


@contextmanager
def _evaluating(method: Method) -> Iterator[None]:
    """Without dropout, then as it was."""
    before = {module: module.training for module in method.modules()}
    method.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


def _write_json(path: Path, what: object) -> None:
    path.write_text(json.dumps(what, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
