"""Models of the `transformers` library: from a folder, from the hub, or a new BERT of a few numbers."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from models.pieces import going_on
from models.recipe import RecipeError
from models.rotary import KIND

WITH_POOLER = ("bert", "roberta", "xlm-roberta")  # whose unused pooler can be left out
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout")  # by kind of model
LEARNED = ("config.json", "model.safetensors", "pytorch_model.bin")  # what decides its vectors, beside the tokenizer


class MissingModelError(RecipeError):
    """A model that is neither a folder here nor given by the hub."""


def local(path: str) -> Path:
    """
    The folder of a model: that path, or what the hub has under this name.

    Raises:
        MissingModelError: neither; the other ways are named.
        RecipeError: a file, or a folder without a model.
    """
    if Path(path).is_file():
        raise RecipeError(f'encoder.path is "{path}", a file; give the folder of a model')
    if Path(path).is_dir():
        if not (Path(path) / "config.json").is_file():
            raise RecipeError(f'encoder.path is "{path}", a folder without config.json; give a model that can be read')
        return Path(path)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(path, allow_patterns=["*.json", "*.txt", *LEARNED]))
    except Exception as error:  # the hub's errors have no common class
        reason = _short(error)
        raise MissingModelError(
            f'encoder.path is "{path}": no folder here, and the hub does not give it ({reason}). Ways out: the folder '
            'of a model that transformers reads, --set encoder.path=FOLDER; a new encoder, --set encoder.path="" with '
            "encoder.layers, width and heads; or HF_HUB_OFFLINE=0 where the hub can be reached"
        ) from None


def opened(
    folder: Path | None,
    vocabulary: int,
    new: dict[str, int],
    dropout: float | None,
    masked: bool,
    tokenizer: Tokenizer | None,
    rotary: bool = False,
) -> Any:
    """
    A model of the `transformers` library: a folder's, or a new BERT, or a new RoFormer if it is `rotary`.

    Raises:
        ValueError: it has fewer words than the tokenizer, or is no RoFormer as it should be.
    """
    from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM  # 4 s, so only where needed

    kind: Any = AutoModelForMaskedLM if masked else AutoModel
    bare: dict[str, Any] = {} if masked else {"add_pooling_layer": False}
    if dropout is not None and not 0 <= dropout < 1:
        raise ValueError(f"encoder.dropout is {dropout}; it is a share of numbers to drop, from 0 to below 1")
    if folder is None:
        config = _new(vocabulary, new, rotary, tokenizer)
        _set_dropout(config, dropout)
        return kind.from_config(config, **({} if rotary else bare))
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise _broken(folder, error) from None
    if rotary and config.model_type != KIND:
        raise ValueError(
            f"encoder.rotary is true, but the model in {folder} is a {config.model_type}, with positions of its own; "
            "--set encoder.rotary=false keeps them"
        )
    _set_dropout(config, dropout)
    if config.vocab_size < vocabulary:
        raise ValueError(
            f"the model in {folder} has {config.vocab_size} words, the tokenizer {vocabulary}; use the model's own: "
            "--set tokenizer.kind=encoder"
        )
    bare = bare if config.model_type in WITH_POOLER else {}
    if torch.get_default_device().type == "meta":
        return kind.from_config(config, **bare)
    try:
        with quiet():
            return kind.from_pretrained(folder, config=config, dtype=torch.float32, trust_remote_code=False, **bare)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise _broken(folder, error) from None


def _new(vocabulary: int, sizes: dict[str, int], rotary: bool, tokenizer: Tokenizer | None) -> Any:
    """
    Raises:
        ValueError: sizes that do not fit together.
    """
    from transformers import BertConfig, RoFormerConfig

    for name in ("layers", "width", "heads", "inner", "positions"):
        if sizes[name] < 1:
            raise ValueError(f"encoder.{name} is {sizes[name]}; should be at least 1")
    if sizes["width"] % sizes["heads"]:
        raise ValueError(f"encoder.width is {sizes['width']}; should be a multiple of encoder.heads, {sizes['heads']}")
    if rotary and sizes["width"] // sizes["heads"] % 2:
        raise ValueError(
            f"encoder.width is {sizes['width']}; rotary positions turn pairs of numbers, so it should be a multiple of "
            f"twice encoder.heads, {2 * sizes['heads']}"
        )
    kind: Any = RoFormerConfig if rotary else BertConfig
    return kind(
        vocab_size=vocabulary,
        num_hidden_layers=sizes["layers"],
        hidden_size=sizes["width"],
        num_attention_heads=sizes["heads"],
        intermediate_size=sizes["inner"],
        max_position_embeddings=sizes["positions"],
        pad_token_id=tokenizer.token_to_id("[PAD]") if tokenizer else None,
    )


def check_weights(folder: Path) -> None:
    """
    Look at the weights of a folder without reading them.

    Raises:
        RecipeError: there are none, or the file is damaged.
    """
    if not any((folder / name).is_file() for name in LEARNED[1:]) and not list(folder.glob("*.index.json")):
        raise RecipeError(f"{folder} holds no weights: none of {', '.join(LEARNED[1:])}; copy the whole model")
    try:
        if (folder / LEARNED[1]).is_file():
            with safe_open(str(folder / LEARNED[1]), framework="pt"):
                pass
    except SafetensorError as error:
        raise _broken(folder, error) from None


def _broken(folder: Path, error: Exception) -> RecipeError:
    return RecipeError(f"the model in {folder} cannot be read: {_short(error)}; copy it anew")


def _short(error: Exception) -> str:
    return textwrap.shorten(str(error), 160, placeholder=" ...")


def _set_dropout(config: Any, share: float | None) -> None:
    """
    Raises:
        ValueError: where this kind of model keeps its dropout is not known.
    """
    there = [name for name in DROPOUTS if hasattr(config, name)]
    if share is not None and not there:
        raise ValueError(f"encoder.dropout is {share}, but {config.model_type} models have no setting for it; leave it")
    for name in there if share is not None else []:
        setattr(config, name, share)


@contextmanager
def quiet() -> Iterator[None]:
    """No bars, and no report of the weights that a folder has beside those that are wanted."""
    from transformers.utils import logging

    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def first_position(body: Any) -> int:
    """Position number of the first token: RoBERTa counts from behind its padding word."""
    padding = getattr(body.embeddings, "padding_idx", None) if hasattr(body, "embeddings") else None
    return 0 if padding is None else int(padding) + 1


def continuing(tokenizer: Tokenizer | None, size: int) -> Tensor:
    """True [V] for pieces that go on with a word, as WordPiece marks them."""
    continues_V = torch.zeros(size, dtype=torch.bool)
    if tokenizer:
        continues_V[going_on(tokenizer)] = True
    return continues_V
