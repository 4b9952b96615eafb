"""A corpus composed of word lists, a recipe small enough for it, and the command to run on it."""

import json
import random
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from flows.__main__ import app

TOPICS = {
    "sea": "wave salt harbour sail tide anchor gull shore",
    "field": "wheat plough furrow barn straw seed hedge soil",
    "forge": "iron anvil hammer coal spark bellows tongs steel",
    "night": "moon star owl shadow lantern frost dream quiet",
}
SIZES = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}  # of a BERT
SMALL = [
    "batches.rows=64",
    "batches.lane_rows=32",
    "encoder.width=16",
    "corpus.held_out=0.2",
    "training.epochs=4",
    "training.precision=fp32",
]


def sentences(topic: str, count: int, seed: object) -> list[str]:
    """Sentences of one topic's words, none twice."""
    draw, words = random.Random(str(seed)), TOPICS[topic].split()
    pick = lambda: draw.choice(words)
    return [f"The {pick()} and the {pick()} meet the {pick()} of {pick()} at hour {n}." for n in range(count)]


def write_corpus(folder: Path, documents: int = 40) -> Path:
    """Text files of eight sentences, a topic each, so that neighbours share their words."""
    folder.mkdir(parents=True)
    for number in range(documents):
        topic = list(TOPICS)[number % len(TOPICS)]
        (folder / f"{topic}{number:02}.txt").write_text(" ".join(sentences(topic, 8, number)))
    return folder


def write_bad_rows(file: Path) -> None:
    """Rows of which only the fifth can be used."""
    rows = [b'{"text": null}', b'{"text": "  "}', b'{"text": "b\xffd"}', b'{"text": ', b'{"text": "A good one."}']
    rows += [b'{"text": "%s"}' % (b"long " * 2_000_000)]
    file.write_bytes(b"\n".join(rows) + b"\n")


def firth(*arguments: object, text: str | bytes | None = None) -> Result:
    """The command in this process, with Ray and Prefect's server running already."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=text)


def retrain(corpus: object, store: object, *settings: str, recipe="quick-thoughts-bag", options=()) -> Result:
    """`firth retrain` of a small recipe."""
    chosen = [part for setting in (*SMALL, *settings) for part in ("--set", setting)]
    return firth("retrain", recipe, "--corpus", corpus, "--store", store, *chosen, *options)


def outcome(corpus: object, store: object, *settings: str) -> dict[str, Any]:
    """What `retrain` says at its end."""
    found = retrain(corpus, store, *settings, options=["--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout.splitlines()[-1])


def stages(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A run's stages by name."""
    return {stage["name"]: stage for stage in result["stages"]}


def write_base(folder: Path, made: Any) -> Path:
    """A little BERT that knows the made-up words, of a class of `transformers`."""
    from tokenizers import Tokenizer, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece
    from transformers import BertConfig

    special = ["<unk>", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]
    plain = ["the", "and", "meet", "of", "at", "hour", ".", *map(str, range(10)), *(f"##{n}" for n in range(10))]
    words = [*special, *plain, *sorted({word for topic in TOPICS.values() for word in topic.split()})]
    tokenizer = Tokenizer(WordPiece({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(special)
    config = BertConfig(vocab_size=len(words), max_position_embeddings=40, pad_token_id=1, **SIZES)
    made(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder
