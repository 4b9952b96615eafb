"""`firth rewrite`, as a person meets it."""

import json

import pytest
from made_up import firth

from models.folder import save
from models.method import Method
from models.recipe import Tokenizer as Settings
from models.recipe import load
from models.resolving import resolve
from pipeline.vocabulary import train

SMALL = ["encoder.path=''", "encoder.layers=1", "encoder.width=16", "encoder.heads=2", "encoder.rotary=true"]
TEXT = "a baker waits"


def written(folder, name):
    """A model folder, as it is before any training."""
    from tokenizers import Tokenizer

    text = train(lambda: iter([["the river waits for a baker who sings of old clocks and owls"] * 3]), Settings(
        kind="wordpiece", size=120, lowercase=True
    ))  # fmt: skip
    tokenizer = Tokenizer.from_str(text)
    method = Method(resolve(load(name, SMALL)), tokenizer.get_vocab_size(), tokenizer=tokenizer)
    save(folder, method, text, {}, "")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("model") / "simbert", "simbert")


def test_a_line_a_text_the_best_first(folder):
    result = firth("rewrite", folder, TEXT, "-n", 4, "--longest", 5)
    lines = result.stdout.splitlines()
    scores = [float(line.split("  ")[0]) for line in lines]
    assert (result.exit_code, len(lines), result.stderr) == (0, 4, "")
    assert scores == sorted(scores, reverse=True)


def test_json_prints_an_object_a_text(folder):
    plain = firth("rewrite", folder, TEXT, "-n", 3, "--seed", 4).stdout.splitlines()
    found = [
        json.loads(line)
        for line in firth("rewrite", folder, TEXT, "-n", 3, "--seed", 4, "--json").stdout.split("\n")[:-1]
    ]
    assert [f"{hit['score']:6.3f}  {hit['text']}" for hit in found] == plain


def test_fewer_than_wanted_are_told_of_beside_them(folder):
    result = firth("rewrite", folder, TEXT, "-n", 5, "--top-k", 1, "--longest", 3)
    [line] = result.stderr.splitlines()
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1)
    assert line.startswith(
        "firth: 1 of 5: of 50 texts that were drawn 0 are empty, 0 say the same as the text, 49 were"
    )


def test_a_model_that_does_not_write_is_told_in_a_line(tmp_path):
    result = firth("rewrite", written(tmp_path / "model", "mlm"), TEXT)
    [line] = result.stderr.splitlines()
    assert line.startswith("firth: model of recipe mlm writes nothing") and "firth retrain simbert" in line
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_chance_out_of_its_range_is_a_slip_of_the_pen(folder):
    result = firth("rewrite", folder, TEXT, "--top-p", 0)
    assert result.exit_code == 2 and "is no chance above 0, up to 1" in result.stderr
