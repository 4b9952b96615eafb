"""Texts in other words by a model of one's own: written once, one of them drawn a row and epoch."""

import json
from types import SimpleNamespace

import corpora
import numpy as np
import polars as pl
import pytest
import torch
from tokenizers import Tokenizer

from models.folder import load as opened
from models.folder import save
from models.method import Method
from models.recipe import RecipeError, load
from models.resolving import resolve
from models.rewriting import alike
from pipeline import paraphrases
from pipeline.augment import paraphrase
from pipeline.road import Road
from pipeline.store import Store
from pipeline.tables import FILLER

SETTINGS = ["pairs={kind='single'}", "batches.rows=12", "tokenizer.kind=wordpiece", "tokenizer.size=60"]
SETTINGS += ["encoder.width=8", "corpus.held_out=0.2"]
WRITER = ["encoder.path=''", "encoder.layers=1", "encoder.width=16", "encoder.heads=2", "encoder.rotary=true"]


def made(folder, vocabulary, name="simbert"):
    """A model folder, as it is before any training."""
    tokenizer = Tokenizer.from_str(vocabulary.tokenizer)
    torch.manual_seed(0)
    save(folder, Method(resolve(load(name, WRITER)), tokenizer.get_vocab_size(), tokenizer=tokenizer),
         vocabulary.tokenizer, {}, "")  # fmt: skip
    return folder


def road(place, *settings):
    lines = [json.dumps({"id": at // 4, "text": text}) for at, text in enumerate(corpora.story(7, 40))]
    (place / "texts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return Road(Store.at(place / "store"), load("quick-thoughts-bag", [*SETTINGS, *settings]), f"{place}/texts.jsonl")


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """The stages up to two epochs' batches, the second view of each text being a paraphrase."""
    place = tmp_path_factory.mktemp("paraphrases")
    plain = road(place)
    folder = made(place / "writer", plain.vocabulary(plain.sentences(plain.documents(plain.numbered()))))
    augment = f"augment=[{{kind='none'}}, {{kind='paraphrase', model='{folder}', count=3, longest=6}}]"
    whole = road(place, augment)
    sentences = whole.sentences(whole.documents(whole.numbered()))
    words = whole.vocabulary(sentences)
    tokens = whole.tokens(sentences, words)
    others = whole.augmented(sentences, words)
    source = whole.source(sentences, tokens, whole.pairs(sentences), None, others)
    read = lambda table: whole.store.read(next(iter(table.pieces.values())))
    return SimpleNamespace(
        road=whole, folder=folder, words=words, sentences=read(sentences), table=others, others=read(others),
        tokens=read(tokens), source=source, epochs=[read(whole.batches(source, epoch)) for epoch in range(2)],
        again=lambda: whole.augmented(sentences, words),
    )  # fmt: skip


def test_each_training_text_is_said_in_other_words_and_no_held_out_one(walked):
    of = walked.others["text"].unique().sort().to_list()
    secret = walked.sentences["held_out"].to_list()
    assert set(of) <= {row for row, held_out in enumerate(secret) if not held_out}
    assert walked.table.count("texts") == secret.count(False)
    assert walked.table.count("without") == secret.count(False) - len(of) < 5
    views = walked.others.group_by("text", maintain_order=True).agg("view")["view"].to_list()
    assert all(one == list(range(len(one))) and len(one) <= 3 for one in views)


def test_others_differ_from_the_text_and_from_each_other(walked):
    tokenizer = Tokenizer.from_str(walked.words.tokenizer)
    for (row,), group in walked.others.partition_by("text", as_dict=True).items():
        said = [alike(tokenizer, tokenizer.decode(tokens)) for tokens in group["tokens"].to_list()]
        own = alike(tokenizer, walked.sentences["text"][row])
        assert len({own, *said}) == 1 + len(said)


def test_a_second_run_writes_nothing(walked):
    again = walked.again()
    assert (again.cached, again.new, again.key) == (True, 0, walked.table.key)


def test_the_second_view_is_one_of_a_texts_others_and_the_first_the_text(walked):
    known = {
        row: group["tokens"].to_list() for (row,), group in walked.others.partition_by("text", as_dict=True).items()
    }
    own = walked.tokens["tokens"].to_list()
    for row in walked.epochs[0].filter(pl.col("side") != FILLER).iter_rows(named=True):
        wanted = known.get(row["text"], [own[row["text"]]]) if row["view"] else [own[row["text"]]]
        assert row["tokens"] in wanted


def test_each_epoch_draws_anew(walked):
    drawn = [
        epoch.filter((pl.col("view") == 1) & (pl.col("side") != FILLER)).sort("text")["tokens"].to_list()
        for epoch in walked.epochs
    ]
    assert sum(left != right for left, right in zip(*drawn, strict=True)) > len(drawn[0]) / 3


def test_what_was_written_decides_batches_and_the_folders_path_does_not(walked):
    keys = walked.source.keys()
    assert len([key for key in keys if next(iter(walked.table.pieces.values())).key in key]) == 1
    assert "model" not in walked.source.examples.record()["augment"][1]


def test_each_of_a_texts_others_is_drawn_as_often():
    others = pl.DataFrame(
        {"text": [1, 1, 1], "tokens": [[5], [6], [7]]}, schema={"text": pl.UInt64, "tokens": pl.List(pl.Int32)}
    )
    others = others.with_columns(text=pl.col("text") + (3 << 32))
    tokens = pl.Series("tokens", [[1], [2]] * 3000, dtype=pl.List(pl.Int32))
    row_R = np.array([0, 1] * 3000)
    found = paraphrase(tokens, np.random.default_rng(0), None, row_R, others, model="").explode().to_numpy()
    assert (found[0::2] == 1).all()
    assert np.bincount(found[1::2], minlength=8)[5:].tolist() == pytest.approx([1000] * 3, abs=130)


# What is refused before any work


def refused(*settings):
    with pytest.raises(RecipeError) as told:
        paraphrases.check(load("quick-thoughts-bag", [*SETTINGS, *settings]))
    return str(told.value)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    message = refused(f"augment=[{{kind='paraphrase', model='{tmp_path}/nobody'}}]")
    assert "is no model folder: no recipe.json, tokenizer.json, weights.safetensors; give the folder" in message


def test_a_model_that_does_not_write_is_refused(tmp_path, walked):
    folder = made(tmp_path / "mlm", walked.words, "mlm")
    message = refused(f"augment=[{{kind='paraphrase', model='{folder}'}}]")
    assert "of recipe mlm, which writes nothing: none of its terms generates; give one that does" in message


def test_two_that_differ_are_refused(walked):
    one, other = (f"{{kind='paraphrase', model='{walked.folder}', count={count}}}" for count in (2, 3))
    assert "two entries of kind paraphrase that differ" in refused(f"augment=[{one}, {other}]")


def test_many_texts_are_written_as_each_alone(walked):
    from models.decoding import Drawing
    from models.rewriting import reworded

    model, texts = opened(walked.folder), walked.sentences["text"].to_list()[:12]
    together = reworded(model, texts, range(12), 3, Drawing(longest=6))
    for at in (0, 5, 11):
        [alone] = reworded(model, [texts[at]], [at], 3, Drawing(longest=6))
        assert set(alone.texts) == set(together[at].texts)
