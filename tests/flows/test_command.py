"""The `firth` command, as a person meets it: what it prints, where, and with which exit code."""

import gzip
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from made_up import firth, retrain, sentences, write_corpus

import flows.__main__ as command

pytestmark = pytest.mark.usefixtures("prefect_server", "ray_session")

HEAVY = ("torch", "ray", "prefect", "polars", "mlflow", "pyarrow")
FIELDS = {"model_folder", "scores", "gate", "registered", "stages", "training"}  # and others, for the scoreboard


def process(*arguments, text=None, **environment):
    """The command as a process of its own."""
    line = [sys.executable, "-m", "flows", *map(str, arguments)]
    return subprocess.run(line, input=text, capture_output=True, text=True, env={**os.environ, **environment})


def files(folder):
    """Names of all files below, but those that an opened store and Prefect's first task leave."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def refused(result, *words):
    """One line, with all the words, and exit code 2."""
    [line] = result.stderr.splitlines()
    assert line.startswith("firth: ")
    assert [word for word in words if word not in line] == []
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.fixture(scope="module")
def folder(trained):
    return json.loads(trained.stdout)["model_folder"]


# What it says of itself.


def test_help_answers_within_a_second():
    """Of its own time: on a busy machine any process waits."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = process("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1
    assert "retrain" in found.stdout


def test_help_imports_nothing_heavy():
    code = f"import flows.__main__, sys; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_recipes_lists_each_with_its_source():
    lines = firth("recipes").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "quick-thoughts",
        "quick-thoughts-bag",
        "quick-thoughts-multichannel",
    ] or len(lines) >= 3
    assert any("Logeswaran and Lee 2018" in line for line in lines)


def test_describe_fills_in_what_a_recipe_leaves_out_and_what_is_set():
    shown = json.loads(firth("describe", "quick-thoughts-bag", "--set", "training.epochs=7").stdout)
    assert (shown["training"]["epochs"], shown["corpus"]["text"]) == (7, "text")
    assert shown["evaluation"][0]["kind"] == "neighbours"


# Retrain.


def test_json_prints_one_object_last_with_all_that_a_caller_needs(trained):
    result = json.loads(trained.stdout.splitlines()[-1])
    assert result.keys() >= FIELDS
    assert result["training"].keys() >= {"steps", "rows_per_second", "loss"}
    assert trained.stdout.count("\n") == 1


def test_a_run_that_is_good_exits_with_0(trained):
    assert trained.exit_code == 0


def test_without_json_the_scoreboard_says_where_everything_is(trained, corpus, store, folder):
    page = retrain(corpus, store, options=["--register", "made-up"]).stdout
    for part in ("Stages", "Training", "Scores: neighbours", "made-up version 1", folder, "mlflow.db", str(store)):
        assert part in page.replace("\n", "")


# Encode.


def test_encode_prints_a_vector_a_line(folder):
    lines = firth("encode", folder, text="the wave\nthe iron and the anvil\n").stdout.splitlines()
    assert [len(json.loads(line)) for line in lines] == [16, 16]


def test_encode_takes_a_registered_name_and_gives_the_same(trained, folder, store):
    by_name = firth("encode", "made-up", "--store", store, text="the wave\n")
    assert by_name.stdout == firth("encode", folder, text="the wave\n").stdout != ""


def test_a_folder_that_happens_to_have_a_registered_name_is_not_taken_for_the_model(
    trained, store, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made-up").mkdir()
    result = firth("encode", "made-up", "--store", store, text="the wave\n")
    assert (result.exit_code, len(json.loads(result.stdout))) == (0, 16)


def test_a_store_among_the_texts_is_refused_and_not_made(corpus):
    inside = Path(corpus) / "store"
    refused(retrain(corpus, inside), str(inside), "read as text", "--store .firth")
    assert not inside.exists()


def test_encode_of_nothing_prints_nothing(folder):
    result = firth("encode", folder, text="")
    assert (result.exit_code, result.stdout) == (0, "")


def test_encode_refuses_a_folder_that_is_no_model(tmp_path):
    refused(firth("encode", tmp_path, text="a\n"), str(tmp_path), "no tokenizer.json", "give the folder")


def test_encode_refuses_a_name_where_no_registry_is_and_makes_none(tmp_path):
    refused(firth("encode", "nobody", "--store", tmp_path / "none", text="a\n"), '"nobody"', "--store")
    assert files(tmp_path) == []


def test_encode_refuses_a_name_that_is_not_registered(trained, store):
    refused(firth("encode", "nobody", "--store", store, text="a\n"), '"nobody"', "known: made-up")


def test_encode_names_the_line_that_is_no_utf_8(folder):
    refused(firth("encode", folder, text=b"good\nb\xffd\n"), "line 2", "UTF-8", "iconv")


# Search.


@pytest.fixture(scope="module")
def found(trained, corpus, store):
    options = ["--corpus", corpus, "--store", store, "-n", "6", "--json"]
    return [
        json.loads(line)
        for line in firth("search", "made-up", "the wave and the gull", *options).stdout.split("\n")[:-1]
    ]


def test_search_finds_what_the_query_is_about(found):
    assert len(found) == 6
    assert all(hit["source"].startswith("sea") for hit in found)


def test_search_prints_the_best_first(found):
    scores = [hit["score"] for hit in found]
    assert scores == sorted(scores, reverse=True)


def test_search_prints_each_text_once(trained, store, tmp_path):
    corpus = write_corpus(tmp_path / "texts", 8)
    for number in range(30):
        (corpus / f"again{number}.txt").write_text("The wave and the gull.")
    options = ["--corpus", corpus, "--store", store, "-n", "5", "--json"]
    hits = [
        json.loads(line)
        for line in firth("search", "made-up", "the wave and the gull", *options).stdout.split("\n")[:-1]
    ]
    assert hits[0]["text"] == "The wave and the gull."
    assert len({hit["text"] for hit in hits}) == len(hits) == 5


def test_search_by_folder_shows_score_place_and_text(folder, corpus, store):
    lines = firth("search", folder, "the anvil", "--corpus", corpus, "--store", store, "-n", "1").stdout.splitlines()
    assert "forge" in lines[0] and "row 1" in lines[0]
    assert lines[1].startswith("        The ")


# What is wrong with the order is told before any work.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"recipe": "quick-thought"}, ['"quick-thought"', "known:", "quick-thoughts-bag"]),
        ({"settings": ["batches.row=3"]}, ['unknown key "batches.row"', "known:", "rows"]),
        ({"settings": ["nonsense"]}, ['"nonsense"', "KEY=VALUE"]),
        ({"settings": ["encoder.kind=bags"]}, ['"bags"', "known: bag, gru"]),
        ({"settings": ["terms.0.similarity.kind=cosin"]}, ['"cosin"', "known:", "cosine"]),
        ({"settings": ["terms.0.similarity.temperature=0"]}, ["temperature is 0"]),
        ({"settings": ["pairs.kind=twins"]}, ['"twins"', "known: groups, neighbours"]),
        ({"settings": ["evaluation=[{kind='guess'}]"]}, ['"guess"', "known: neighbours"]),
        ({"settings": ["training.start=/no/model"]}, ['"/no/model"', "fresh"]),
        ({"recipe": "quick-thoughts-multichannel"}, ["encoder.f2", "--set encoder.f2.table=PATH"]),
        ({"options": ["--workers", "0"]}, ["workers is 0", "at least 1"]),
        ({"options": ["--gpu", "--workers", "99"]}, ["--gpu", "99 worker(s)"]),
        ({"options": ["--tracking", "http://127.0.0.1:9"]}, ["127.0.0.1:9", "does not answer"]),
        ({"options": ["--tracking", "./mlruns"]}, ["./mlruns", "sqlite:///"]),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[0],
)
def test_a_wrong_order_is_refused_before_any_stage(corpus, tmp_path, options, words):
    settings = options.get("settings", ())
    result = retrain(corpus, tmp_path / "store", *settings, **{k: v for k, v in options.items() if k != "settings"})
    refused(result, *words)
    assert files(tmp_path) == []


def test_a_store_that_cannot_be_written_is_refused(corpus, tmp_path):
    (tmp_path / "file").write_text("")
    refused(retrain(corpus, tmp_path / "file" / "store"), "file/store", "cannot be written", "--store DIR")


def test_a_remote_store_wants_a_tracking_uri(corpus, monkeypatch):
    refused(retrain(corpus, "memory:///store"), "memory:///store", "tracking URI")


# What is wrong with the corpus is told with file, row and remedy, and leaves no table behind.


def broken_parquet(path):
    pl.DataFrame({"text": sentences("sea", 50, 1)}).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-40])


CORPORA = {
    "missing path": (lambda path: None, ["no such file or folder"]),
    "empty folder": (lambda path: path.mkdir(), ["holds no files"]),
    "empty file.txt": (lambda path: path.write_text(""), ["all empty"]),
    "unknown suffix.docx": (lambda path: path.write_text("a"), ["suffixes there: .docx", "known: .txt"]),
    "missing column.jsonl": (lambda path: path.write_text('{"body": "a"}\n'), ["body", "corpus.text"]),
    "missing column.csv": (
        lambda path: path.write_text("body,day\na,1\n"),
        ["columns there: body, day", "corpus.text"],
    ),
    "truncated.parquet": (broken_parquet, ["truncated.parquet", "broken Parquet", "write the file again"]),
    "truncated.jsonl.gz": (
        lambda path: path.write_bytes(gzip.compress(os.urandom(9000))[:-4000]),
        ["truncated.jsonl.gz", "broken gzip"],
    ),
    "blank.jsonl": (
        lambda path: path.write_text('{"text": " "}\n'),
        ["no usable text", "1 records", "quarantine", "row 1", "blank"],
    ),
    "small.txt": (lambda path: path.write_text(" ".join(sentences("sea", 20, 1))), ["batches.rows", "20", "64"]),
}


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_that_cannot_be_used_is_refused(name, tmp_path):
    make, words = CORPORA[name]
    make(tmp_path / name)
    result = retrain(tmp_path / name, tmp_path / "store", "corpus.held_out=0")
    refused(result, *words)
    assert not any(file.startswith(("store/weights", "store/batches", "store/vectors")) for file in files(tmp_path))
    assert "store/mlflow.db" not in files(tmp_path)


def test_a_process_says_one_line_of_an_error_that_a_task_raised(tmp_path, prefect_server):
    order = ("retrain", "quick-thoughts-bag", "--corpus", tmp_path / "none", "--store", tmp_path / "store")
    found = process(*order, PREFECT_API_URL=prefect_server)
    assert found.returncode == 2
    assert found.stderr == f"firth: source {tmp_path}/none: no such file or folder; check the path, or quote the glob\n"


def test_a_bug_keeps_its_traceback(monkeypatch, corpus, tmp_path):
    def broken():
        raise ValueError("a shape that does not fit")

    with pytest.raises(ValueError, match="shape"), command._told():
        broken()


def test_a_full_disk_is_no_bug(capsys):
    with pytest.raises(command.typer.Exit) as ended, command._told():
        raise OSError(28, "No space left on device", "/store/a.parquet")
    assert ended.value.exit_code == 2
    assert "No space left on device: '/store/a.parquet'; make room" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(folder):
    line = f"yes 'the wave' | head -20000 | {sys.executable} -m flows encode {folder} | head -1"
    found = subprocess.run(line, shell=True, capture_output=True, text=True)
    assert (len(found.stdout.splitlines()), found.stderr) == (1, "")


# Bad rows cost nothing but themselves.


@pytest.fixture(scope="module")
def spotted(trained):
    """The result of a run over good documents and one file of bad rows."""
    assert trained.exit_code == 0, trained.stderr
    return json.loads(trained.stdout)


def test_bad_rows_are_counted_by_their_reason(spotted):
    dropped = spotted["dropped"]
    assert spotted["stages"][0]["quarantined"] == 5
    assert dropped["text is missing"] == dropped["text is blank"] == dropped["not JSON"] == 1
    assert dropped["not UTF-8 at byte … of the value"] == dropped["text of … characters"] == 1


def test_bad_rows_are_listed_with_file_row_and_remedy(spotted):
    [path] = spotted["quarantine"]["files"]
    listed = pl.read_parquet(path)
    assert listed["source"].unique().to_list() == ["bad.jsonl"]
    assert listed["row"].to_list() == [1, 2, 3, 4, 6]
    assert spotted["quarantine"]["first"] == listed.select("source", "row", "reason").head(3).to_dicts()
    assert "fill it in or drop the row" in listed["reason"][0]
    assert listed["excerpt"].str.len_chars().max() <= 200


def test_good_rows_beside_bad_ones_are_used(spotted):
    assert spotted["read"]["sentences"] == 40 * 8 + 1
