"""Questions and their judged answers, from every form of table, as documents."""

import json

import polars as pl
import pytest

from flows.summary import drops
from models.recipe import Corpus, RecipeError, load
from pipeline import corpus, sources
from pipeline.manifest import Manifest
from pipeline.road import Road
from pipeline.sources import SourceError
from pipeline.store import Store

ROWS = [
    ("Where do swifts sleep?", "On the wing.", "1"),
    ("Where do swifts sleep?", "In burrows by the sea.", "0"),
    ("Where do swifts sleep?", 'They "sleep" alone.', "0"),
    ("What do owls eat?", "Mice.", "1"),
    ("What do owls eat?", "Small mammals.", "1"),
]
ASKS = Corpus(texts=("question", "answer"), label="label", labels="right")
NAMES = ("question", "answer", "label")


def read(path, **settings) -> tuple[pl.DataFrame, pl.DataFrame]:
    how = ASKS.model_copy(update=settings)
    got = [sources.read(shard, how) for shard in sources.shards(str(path), how, {})]
    return pl.concat([records for records, _ in got]), pl.concat([bad for _, bad in got])


def tsv(path, rows, header=NAMES):
    lines = ["\t".join(row) for row in ([header] if header else []) + list(rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def short(records: pl.DataFrame) -> list[tuple[str, int, str, int | None]]:
    return records.select("id", "place", "text", "label").rows()


WANTED = [
    ("Where do swifts sleep?", 0, "Where do swifts sleep?", None),
    ("Where do swifts sleep?", 1, "On the wing.", 1),
    ("Where do swifts sleep?", 2, "In burrows by the sea.", 0),
    ("Where do swifts sleep?", 3, 'They "sleep" alone.', 0),
    ("What do owls eat?", 0, "What do owls eat?", None),
    ("What do owls eat?", 1, "Mice.", 1),
    ("What do owls eat?", 2, "Small mammals.", 1),
]


def as_tsv(folder):
    return tsv(folder / "a.tsv", ROWS), {}


def as_lines_without_header(folder):
    return tsv(folder / "a.txt", ROWS, header=None), {"columns": NAMES}


def as_csv(folder):
    pl.DataFrame(ROWS, schema=list(NAMES), orient="row").write_csv(folder / "a.csv")
    return folder / "a.csv", {}


def as_jsonl(folder):
    lines = [json.dumps(dict(zip(NAMES, row, strict=True)) | {"label": int(row[2])}) for row in ROWS]
    (folder / "a.jsonl").write_text("\n".join(lines))
    return folder / "a.jsonl", {}


def as_parquet(folder):
    frame = pl.DataFrame(ROWS, schema=list(NAMES), orient="row").with_columns(pl.col("label").cast(pl.Float64))
    frame.write_parquet(folder / "a.parquet")
    return folder / "a.parquet", {}


def as_parallel(folder):
    for name, column in zip(NAMES, zip(*ROWS, strict=True), strict=True):
        (folder / name).write_text("\n".join(column) + "\n")
    (folder / "boundary").write_text("0\n3\n")
    return folder, {"parallel": True}


@pytest.mark.parametrize("form", [as_tsv, as_lines_without_header, as_csv, as_jsonl, as_parquet, as_parallel])
def test_a_question_is_a_document_with_its_answers_behind_it_in_every_form(tmp_path, form):
    path, settings = form(tmp_path)
    records, bad = read(path, **settings)
    assert (short(records), len(bad)) == (WANTED, 0)


def test_the_label_travels_to_documents_and_sentences(tmp_path):
    records, _ = read(tsv(tmp_path / "a.tsv", ROWS))
    documents = corpus.documents(records, ASKS)
    sentences = corpus.sentences(documents, whole=True)
    assert sorted(sentences.select("text", "label").rows(), key=str) == sorted(
        [(t, n) for _, _, t, n in WANTED], key=str
    )


def test_other_corpora_have_no_such_column(tmp_path):
    how = Corpus(texts=("question", "answer"))
    [shard] = sources.shards(str(tsv(tmp_path / "a.tsv", ROWS)), how, {})
    documents = corpus.documents(sources.read(shard, how)[0], how)
    assert "label" not in documents.columns and "label" not in corpus.sentences(documents, whole=True).columns


@pytest.mark.parametrize("label", ["2", "-1", "yes", "", "01", "0.5"])
def test_another_label_puts_its_row_aside_with_the_remedy(tmp_path, label):
    rows = [*ROWS[:2], ("Where do swifts sleep?", "Nowhere.", label), *ROWS[3:]]
    records, bad = read(tsv(tmp_path / "a.tsv", rows))
    why = f"no label in column `label`: got {label or 'nothing'}; should be 1 for a right answer or 0 for a wrong one"
    assert bad.select("source", "row").rows() == [("a.tsv", 3)] and bad["reason"][0].startswith(why)
    assert len(records) == 6


def test_a_row_without_an_answer_is_put_aside_and_keeps_its_place(tmp_path):
    rows = [ROWS[0], ("Where do swifts sleep?", "", "0"), *ROWS[2:]]
    records, bad = read(tsv(tmp_path / "a.tsv", rows))
    assert bad["reason"].to_list() == ["no value in column `answer`; fill it in or drop the row"]
    assert records["place"].to_list() == [0, 1, 3, 0, 1, 2]


def test_a_question_of_which_the_first_row_is_bad_is_there_all_the_same(tmp_path):
    rows = [(ROWS[0][0], "?!", "1"), *ROWS[1:]]
    records, _ = read(tsv(tmp_path / "a.tsv", rows))
    assert short(records)[:2] == [(*WANTED[0][:1], 1, *WANTED[0][2:]), WANTED[2]]


def test_rows_that_lie_apart_are_refused_or_gathered(tmp_path):
    path = tsv(tmp_path / "a.tsv", [ROWS[0], ROWS[3], ROWS[1], ROWS[4], ROWS[2]])
    with pytest.raises(SourceError, match=r"a\.tsv, row 3: document Where do swifts sleep"):
        read(path)
    records, _ = read(path, scattered="sort")
    assert short(records) == WANTED


def test_document_columns_name_the_document_and_each_text_begins_a_question(tmp_path):
    rows = [("birds", *row) for row in (ROWS[0], ROWS[3], ROWS[1], ROWS[4], ROWS[2])]
    path = tsv(tmp_path / "a.tsv", rows, ("page", *NAMES))
    records, _ = read(path, document=("page",))
    assert records["id"].unique().to_list() == ["birds"]
    assert records.select("text", "label").rows() == [(text, label) for _, _, text, label in WANTED]
    assert records["place"].to_list() == list(range(7))


def test_quotes_are_letters_in_tables_of_tabs(tmp_path):
    rows = [('Who said "so?', 'He "did.', "1"), ('Who said "so?', '"', "0"), ("Who?", 'She" did.', "0")]
    records, bad = read(tsv(tmp_path / "a.tsv", rows))
    assert records["text"].to_list() == ['Who said "so?', 'He "did.', "Who?", 'She" did.']
    assert bad["row"].to_list() == [2]


def test_a_line_of_other_values_is_put_aside_with_its_row(tmp_path):
    path = tsv(tmp_path / "a.txt", [ROWS[0], ("Where?", "Here.")], header=None)
    _, bad = read(path, columns=NAMES)
    assert bad.select("row", "reason").rows() == [(2, "2 values, should be 3; quote or mend the line")]


# Parallel lines


def folder(path, **columns: str):
    path.mkdir(parents=True, exist_ok=True)
    for name, text in columns.items():
        (path / name).write_text(text)
    return path


def test_each_folder_of_parallel_lines_is_a_shard_and_files_beside_it_are_passed_over(tmp_path):
    folder(tmp_path / "one", question="Why?\r\nWhy?\n", answer="So.\nNot.\n", label="1\n0", more="x\n")
    folder(tmp_path / "two", question="How?\n", answer="So.\n", label="1\n")
    (tmp_path / "LICENCE").write_text("free\n")
    records, bad = read(tmp_path, parallel=True)
    assert records.select("source", "row", "text").rows() == [
        ("one/question", 1, "Why?"),
        ("one/question", 1, "So."),
        ("one/question", 2, "Not."),
        ("two/question", 1, "How?"),
        ("two/question", 1, "So."),
    ]
    assert len(bad) == 0


def test_unequal_lines_are_refused_with_file_and_count(tmp_path):
    folder(tmp_path, question="Why?\nHow?\n", answer="So.\n", label="1\n0\n")
    with pytest.raises(SourceError, match=r"answer has 1 lines, question has 2; .* equally many"):
        read(tmp_path, parallel=True)


def test_an_empty_line_is_no_value(tmp_path):
    folder(tmp_path, question="Why?\nWhy?\n", answer="So.\n\n", label="1\n0\n")
    _, bad = read(tmp_path, parallel=True)
    assert bad.select("row", "reason").rows() == [(2, "no value in column `answer`; fill it in or drop the row")]


def test_a_file_that_is_missing_is_named_beside_those_there(tmp_path):
    folder(tmp_path / "one", question="Why?\n", sim="1\n")
    with pytest.raises(SourceError, match=r"one: no file answer, label; files there: question, sim; set corpus.texts"):
        read(tmp_path, parallel=True)
    with pytest.raises(SourceError, match="no folder holds files called"):
        read(folder(tmp_path / "two", other="x\n"), parallel=True)


def test_a_folder_that_changes_is_another_shard(tmp_path):
    key = lambda: [shard.digest for shard in sources.shards(str(tmp_path), how, {})]
    how = ASKS.model_copy(update={"parallel": True})
    folder(tmp_path, question="Why?\n", answer="So.\n", label="1\n")
    before = key()
    assert key() == before
    folder(tmp_path, label="0\n")
    assert key() != before


# Settings


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["corpus.labels=right"], 'corpus.labels = "right" needs corpus.label'),
        (["corpus.labels=sometimes"], "corpus.labels is 'sometimes'"),
        (["corpus.parallel=true", "corpus.columns=['a']"], "corpus.parallel has files for columns"),
        (["corpus.columns=['a','a']"], "corpus.columns has a name twice"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(overrides, said):
    with pytest.raises(RecipeError, match=said):
        load("simcse-sup", overrides)


# The whole road


def test_a_table_of_answers_becomes_batches_whose_counts_tell_what_teaches_nothing(tmp_path):
    rows = [(f"Why {at}?", text, label) for at in range(12) for text, label in (("So.", "1"), (f"No {at}.", "0"))]
    rows += [("Who?", "Me.", "1"), ("How?", "Badly.", "0")]
    settings = ["corpus.texts=['question','answer']", "corpus.label=label", "corpus.labels=right", "pairs={kind='qa'}"]
    recipe = load("quick-thoughts-bag", [*settings, "corpus.held_out=0", "batches.rows=9", "tokenizer.size=60"])
    road = Road(Store.at(tmp_path / "store"), recipe, str(tsv(tmp_path / "a.tsv", rows)))
    sentences = road.sentences(road.documents(road.numbered()))
    tokens, pairs = road.tokens(sentences, road.vocabulary(sentences)), road.pairs(sentences)
    made = road.batches(road.source(sentences, tokens, pairs))
    assert made.rows == 36 and made.count("anchors") == 12 and made.count("fillers") == 0
    nothing = Manifest("", "", {})
    documents = road.documents(road.numbered())
    dropped = drops([documents, sentences, tokens, pairs, nothing, nothing, made])
    assert dropped == {"questions without a right answer": 1, "questions without a wrong answer": 1}
