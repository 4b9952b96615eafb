import gzip
import json
from pathlib import Path

import corpora
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from models.recipe import Corpus
from pipeline import corpus, labelled, rows, sources, tables
from pipeline.shard import SourceError
from pipeline.store import piece_key

PAIRS = Corpus(texts=("ask", "reply"))
TRIPLES = Corpus(texts=("anchor", "positive", "negative"))
JUDGED = Corpus(texts=("premise", "hypothesis"), label="label")
FORMS = ["csv", "tsv", "jsonl", "jsonl.gz", "csv.zst", "parquet"]
Rows = list[dict[str, object]]


def write(path: Path, table: Rows) -> Path:
    """Rows in the format that the name asks for."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(table), path)
        return path
    separator = "\t" if ".tsv" in path.suffixes else ","
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in table)
    plain = lines if ".jsonl" in path.suffixes else pl.DataFrame(table).write_csv(separator=separator)
    if path.suffix == ".zst":
        with pa.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(plain.encode())
    else:
        path.write_bytes(gzip.compress(plain.encode()) if path.suffix == ".gz" else plain.encode())
    return path


def everything(path: Path, how: Corpus) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Records and quarantine of all shards, one behind the other."""
    got = [sources.read(shard, how) for shard in sources.shards(str(path), how, {})]
    return pl.concat([records for records, _ in got]), pl.concat([bad for _, bad in got])


def judged(*found: tuple[str, str, str]) -> Rows:
    """Rows of premise, hypothesis, label."""
    return [dict(zip(("premise", "hypothesis", "label"), row, strict=True)) for row in found]


# A row is an example


@pytest.mark.parametrize("form", FORMS)
def test_each_row_of_every_format_is_a_document_of_its_texts_in_the_order_of_the_recipe(tmp_path, form):
    table = [
        {"negative": "No 1.", "anchor": "Ask 1.", "positive": "Yes 1."},
        {"negative": "No 2.", "anchor": "Ask 2.", "positive": "Yes 2."},
    ]
    path = write(tmp_path / f"a.{form}", table)
    records, bad = everything(path, TRIPLES)
    assert records.rows() == [
        (path.name, row, f"{path.name}#{row}", "", "en", f"{text} {row}.", place)
        for row in (1, 2)
        for place, text in enumerate(("Ask", "Yes", "No"))
    ]
    assert bad.is_empty()


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize(("document", "column"), [((), "id"), (("talk",), "talk")], ids=["id", "document columns"])
def test_rows_of_one_document_follow_one_another(tmp_path, form, document, column):
    table = [{column: name, "ask": f"{name} {n}?", "reply": f"{name} {n}."} for name in "xy" for n in range(2)]
    records, _ = everything(write(tmp_path / f"a.{form}", table), PAIRS.model_copy(update={"document": document}))
    assert records.select("id", "place", "text").rows() == [
        *[("x", 0, "x 0?"), ("x", 1, "x 0."), ("x", 2, "x 1?"), ("x", 3, "x 1.")],
        *[("y", 0, "y 0?"), ("y", 1, "y 0."), ("y", 2, "y 1?"), ("y", 3, "y 1.")],
    ]


def test_rows_of_a_document_are_sorted_as_wholes_and_keep_their_title_and_language(tmp_path):
    table = [{"talk": "x", "n": n, "t": f"T{n}", "l": "de", "ask": f"A {n}", "reply": f"R {n}"} for n in (10, 9)]
    how = Corpus(texts=("ask", "reply"), document=("talk",), order=("n",), title="t", language_column="l")
    records, _ = everything(write(tmp_path / "a.csv", table), how)
    assert records.select("row", "title", "language", "text", "place").rows() == [
        *[(2, "T9", "de", "A 9", 0), (2, "T9", "de", "R 9", 1)],
        *[(1, "T10", "de", "A 10", 2), (1, "T10", "de", "R 10", 3)],
    ]


def test_the_same_rows_in_two_files_are_two_documents(tmp_path):
    for name in "ab":
        write(tmp_path / f"{name}.jsonl", [{"ask": "A", "reply": "B"}])
    assert everything(tmp_path, PAIRS)[0]["id"].to_list() == ["a.jsonl#1"] * 2 + ["b.jsonl#1"] * 2


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_column_that_the_recipe_names_and_the_file_lacks_is_an_error(tmp_path, form):
    path = write(tmp_path / f"a.{form}", [{"ask": "A", "answer": "B"}])
    with pytest.raises(SourceError, match=rf"a\.{form}: no column reply; columns there: answer, ask; set corpus.texts"):
        everything(path, PAIRS)


@pytest.mark.parametrize("name", ["notes.txt", "notes.md"])
def test_prose_holds_no_labelled_texts(tmp_path, name):
    write(tmp_path / "a.jsonl", [{"ask": "A", "reply": "B"}])
    (tmp_path / name).write_text("Prose.")
    with pytest.raises(SourceError, match=rf"{name} has no columns, and corpus.texts asks for ask, reply; name only"):
        everything(tmp_path, PAIRS)


def test_documentation_of_packages_holds_no_labelled_texts():
    with pytest.raises(SourceError, match=r"pydoc: has no columns, and corpus\.texts asks for ask, reply"):
        sources.shards("pydoc:polars", PAIRS, {})


# Quarantine of whole examples


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value in column `reply`; fill it in or drop the row"),
        (" \t", "no value in column `reply`; fill it in or drop the row"),
        ("x" * 31, "text of 31 characters in column `reply`; corpus.longest is 30"),
        ("a\0b", "NUL in column `reply`; is this text?"),
        ("* * *", "neither letter nor digit in column `reply`; write a sentence or drop the row"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_row_with_one_bad_text_is_put_aside_once_as_a_whole_and_keeps_its_places(tmp_path, form, value, reason):
    table = [{"talk": "x", "ask": f"Ask {n}.", "reply": value if n == 1 else f"Reply {n}."} for n in range(3)]
    how = Corpus(texts=("ask", "reply"), document=("talk",), longest=30)
    records, bad = everything(write(tmp_path / f"a.{form}", table), how)
    assert records.select("row", "place", "text").rows() == [
        *[(1, 0, "Ask 0."), (1, 1, "Reply 0."), (3, 4, "Ask 2."), (3, 5, "Reply 2.")]
    ]
    assert bad.select("source", "row", "reason").rows() == [(f"a.{form}", 2, reason)]


def test_a_row_with_several_bad_texts_is_put_aside_once(tmp_path):
    write(tmp_path / "a.jsonl", [{"anchor": "", "positive": None, "negative": "-"}])
    records, bad = everything(tmp_path, TRIPLES)
    assert records.is_empty()
    assert bad["reason"].to_list() == ["no value in column `anchor`; fill it in or drop the row"]


def test_the_excerpt_is_the_bad_text_or_of_a_missing_one_the_first_that_is_there(tmp_path):
    write(tmp_path / "a.jsonl", [{"ask": "A", "reply": "***"}, {"ask": None, "reply": "B"}])
    assert everything(tmp_path, PAIRS)[1]["excerpt"].to_list() == ["***", "B"]


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
def test_a_text_that_is_not_utf8_costs_its_row(tmp_path, form):
    if form == "parquet":
        pq.write_table(pa.table({"ask": [b"A", b"C"], "reply": [b"caf\xe9", b"D"]}), tmp_path / "a.parquet")
    else:
        (tmp_path / f"a.{form}").write_bytes(
            b"ask,reply\nA,caf\xe9\nC,D\n".replace(b",", b"," if form == "csv" else b"\t")
        )
    records, bad = everything(tmp_path, PAIRS)
    assert records["text"].to_list() == ["C", "D"]
    reason = "column `reply` is not UTF-8 at byte 3 of the value; convert the file, as with iconv -t UTF-8"
    assert bad.rows() == [(f"a.{form}", 1, reason, "caf\\xe9")]


def test_lines_that_are_no_example_are_told_with_their_number(tmp_path):
    lines = ['{"ask": 5, "reply": "B"}', "no json", r'{"ask": "\ud800", "reply": "B"}', '{"ask": "A", "reply": "B"}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    records, bad = everything(tmp_path, PAIRS)
    assert records.select("row", "place", "text").rows() == [(4, 0, "A"), (4, 1, "B")]
    assert bad["row"].to_list() == [1, 2, 3]
    assert bad["reason"][0] == "column `ask` is int, should be a string; quote it"
    assert bad["reason"][1].startswith("not JSON")
    assert bad["reason"][2].startswith("half of a surrogate pair")


def test_a_csv_row_with_a_value_too_many_and_one_whose_quote_stays_open_are_put_aside(tmp_path):
    (tmp_path / "a.csv").write_text('ask,reply\nA,B,C\nD,E\nF,"G\nH,I\n')
    records, bad = everything(tmp_path, PAIRS)
    assert records["text"].to_list() == ["D", "E"]
    assert bad.select("row", pl.col("reason").str.head(10)).rows() == [(1, "3 values, "), (3, "a quote is")]


def test_a_row_without_its_document_is_put_aside(tmp_path):
    table = [{"talk": name, "ask": "A", "reply": "B"} for name in ("x", None, "x")]
    records, bad = everything(write(tmp_path / "a.parquet", table), PAIRS.model_copy(update={"document": ("talk",)}))
    assert records.select("row", "place").rows() == [(1, 0), (1, 1), (3, 2), (3, 3)]
    assert bad["reason"].to_list() == ["no value in document column talk; fill it in"]


def test_a_file_of_nothing_but_a_header_is_told(tmp_path):
    (tmp_path / "a.csv").write_text("ask,reply\n")
    (tmp_path / "b.csv").write_text("ask,reply\nA,B\n")
    (tmp_path / "c.csv").write_text("")
    records, bad = everything(tmp_path, PAIRS)
    assert len(records) == 2
    assert bad["source"].to_list() == ["c.csv"]


TEXT = some.one_of(some.none(), some.text("ab \t*\0é", max_size=4))


@settings(deadline=None, database=None)
@given(some.lists(some.tuples(TEXT, TEXT, TEXT), max_size=8))
def test_every_row_is_in_records_with_all_its_texts_or_once_in_quarantine(table):
    columns = {name: [row[i] for row in table] for i, name in enumerate(TRIPLES.texts)}
    arrays = {name: pa.array(values, pa.string()).cast(pa.large_binary()) for name, values in columns.items()}
    numbers = pl.int_range(1, len(table) + 1, eager=True)
    records, bad = labelled.finish(rows.from_columns("f", numbers, arrays, TRIPLES), TRIPLES)
    fine = lambda text: text is not None and "\0" not in text and any(letter in text for letter in "abé")
    whole = [n for n, row in enumerate(table, 1) if all(map(fine, row))]
    assert records.select("row", "place").rows() == [(n, i) for n in whole for i in range(3)]
    assert records["text"].to_list() == [text for n in whole for text in table[n - 1]]
    assert bad["row"].to_list() == [n for n in range(1, len(table) + 1) if n not in whole]


# Judged pairs become triples


@pytest.mark.parametrize("form", FORMS)
def test_judged_pairs_of_a_premise_become_triples_and_the_shorter_list_begins_again(tmp_path, form):
    table = judged(
        *[("P", "e1", "entailment"), ("P", "c1", "contradiction"), ("P", "n", "neutral"), ("P", "e2", "entailment")],
        *[
            ("P", "e3", "entailment"),
            ("P", "c2", "contradiction"),
            ("Q", "c", "contradiction"),
            ("Q", "e", "entailment"),
        ],
    )
    records, bad = everything(write(tmp_path / f"a.{form}", table), JUDGED)
    assert records.select("id", "place", "row", "text").rows() == [
        *[("P", 0, 1, "P"), ("P", 1, 1, "e1"), ("P", 2, 2, "c1")],
        *[("P", 3, 4, "P"), ("P", 4, 4, "e2"), ("P", 5, 6, "c2")],
        *[("P", 6, 5, "P"), ("P", 7, 5, "e3"), ("P", 8, 2, "c1")],
        *[("Q", 0, 8, "Q"), ("Q", 1, 8, "e"), ("Q", 2, 7, "c")],
    ]
    assert bad.is_empty()


@pytest.mark.parametrize("labels", ["enc", "ENC", "012", ["Entailment", "NEUTRAL", " contradiction "], [0, 1, 2]])
def test_labels_are_words_letters_or_numbers(tmp_path, labels):
    table = judged(*[("P", f"h {n}", label) for n, label in enumerate(labels)])
    records, bad = everything(write(tmp_path / "a.parquet", table), JUDGED)
    assert records["text"].to_list() == ["P", "h 0", "h 2"]
    assert bad.is_empty()


@pytest.mark.parametrize("label", ["-", "", None, "3", "-1", "entails"])
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_row_with_no_such_label_is_put_aside_with_the_labels_that_are_known(tmp_path, form, label):
    table = judged(("P", "e", "e"), ("P", "odd", label), ("P", "c", "c"))
    records, bad = everything(write(tmp_path / f"a.{form}", table), JUDGED)
    assert records["text"].to_list() == ["P", "e", "c"]
    assert bad.select("source", "row").rows() == [(f"a.{form}", 2)]
    assert bad["reason"][0].startswith("no label in column `label`: got ")
    assert "known: entailment, neutral and contradiction" in bad["reason"][0]


def test_reasons_count_together_whatever_the_label_was(tmp_path):
    write(tmp_path / "a.jsonl", judged(*[("P", "h", f"label {n}") for n in range(3)]))
    assert rows.kinds(everything(tmp_path, JUDGED)[1]["reason"]) == ["no label in column `label`"] * 3


@pytest.mark.parametrize(
    ("labels", "without"),
    [
        ("en", "no contradicted hypothesis"),
        ("cc", "no entailed hypothesis"),
        ("n", "no entailed hypothesis and no contradicted hypothesis"),
    ],
)
def test_a_premise_of_which_no_triple_can_be_made_is_put_aside_once(tmp_path, labels, without):
    table = judged(("P", "e", "e"), ("P", "c", "c"), *[("Q", f"h {n}", label) for n, label in enumerate(labels)])
    records, bad = everything(write(tmp_path / "a.csv", table), JUDGED)
    assert set(records["id"]) == {"P"}
    assert bad.rows() == [("a.csv", 3, f"premise with {without}; a triple needs one of each", "Q")]


def test_a_missing_premise_or_hypothesis_costs_its_row_alone(tmp_path):
    table = judged(("P", "e", "e"), ("P", "", "e"), (None, "h", "c"), ("P", "c", "c"))
    records, bad = everything(write(tmp_path / "a.jsonl", table), JUDGED)
    assert records["text"].to_list() == ["P", "e", "c"]
    assert bad.select("row", "reason").rows() == [
        (2, "no value in column `hypothesis`; fill it in or drop the row"),
        (3, "no value in column `premise`; fill it in or drop the row"),
    ]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_the_premise_is_the_document_even_where_there_is_an_id_column(tmp_path, form):
    table = [row | {"id": n} for n, row in enumerate(judged(("P", "e", "e"), ("P", "c", "c")))]
    assert everything(write(tmp_path / f"a.{form}", table), JUDGED)[0]["id"].unique().to_list() == ["P"]


def test_with_document_columns_triples_of_several_premises_follow_one_another(tmp_path):
    table = judged(("P", "e", "e"), ("Q", "x", "e"), ("P", "c", "c"), ("Q", "y", "c"))
    path = write(tmp_path / "a.csv", [row | {"genre": "tales"} for row in table])
    records, _ = everything(path, JUDGED.model_copy(update={"document": ("genre",)}))
    assert records.select("id", "place", "text").rows() == [
        ("tales", place, text) for place, text in enumerate(["P", "e", "c", "Q", "x", "y"])
    ]


def test_a_premise_in_two_documents_is_two_premises(tmp_path):
    table = [
        {"talk": talk} | row
        for talk, labels in (("x", "ec"), ("y", "e"))
        for row in judged(*[("P", f"{talk}{label}", label) for label in labels])
    ]
    records, bad = everything(write(tmp_path / "a.csv", table), JUDGED.model_copy(update={"document": ("talk",)}))
    assert records.select("id", "text").rows() == [("x", "P"), ("x", "xe"), ("x", "xc")]
    assert bad["row"].to_list() == [3]


def test_rows_of_a_premise_that_lie_apart_are_refused_or_sorted(tmp_path):
    path = write(tmp_path / "a.csv", judged(("P", "e", "e"), ("Q", "x", "e"), ("P", "c", "c"), ("Q", "y", "c")))
    with pytest.raises(SourceError, match=r"a\.csv, row 3: document P comes back .* set corpus\.scattered=sort"):
        everything(path, JUDGED)
    records, _ = everything(path, JUDGED.model_copy(update={"scattered": "sort"}))
    assert records["text"].to_list() == ["P", "e", "c", "Q", "x", "y"]


@settings(deadline=None, database=None)
@given(some.lists(some.tuples(some.sampled_from("PQR"), some.sampled_from("encx")), max_size=30))
def test_triples_are_those_of_a_slow_loop_and_no_row_is_lost_unseen(table):
    found = [(premise, f"h{n}", label) for n, (premise, label) in enumerate(table)]
    columns = {name: [row[i] for row in found] for i, name in enumerate(("premise", "hypothesis", "label"))}
    arrays = {name: pa.array(values, pa.string()).cast(pa.large_binary()) for name, values in columns.items()}
    how = JUDGED.model_copy(update={"scattered": "sort"})
    numbers = pl.int_range(1, len(found) + 1, eager=True)
    records, bad = labelled.finish(rows.from_columns("f", numbers, arrays, how), how)
    expected, lost = [], []
    for premise in dict.fromkeys(premise for premise, _, _ in found):
        of = {label: [h for p, h, k in found if (p, k) == (premise, label)] for label in "enc"}
        e, c = of["e"], of["c"]
        if not (e and c) and any(of.values()):
            lost.append(premise)
        for n in range(max(len(e), len(c)) if e and c else 0):
            expected.append((premise, e[n % len(e)], c[n % len(c)]))
    texts = records["text"].to_list()
    assert list(zip(texts[::3], texts[1::3], texts[2::3], strict=True)) == expected
    by_reason = bad["reason"].str.starts_with("premise with")
    assert sorted(bad.filter(by_reason)["excerpt"]) == sorted(lost)
    assert (~by_reason).sum() == sum(label == "x" for _, label in table)


# Cuts of large files


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_large_file_of_pairs_is_cut_between_any_two_rows_and_read_as_one(tmp_path, form):
    table = [{"ask": f"Ask number {n}.", "reply": f"Reply number {n}."} for n in range(200)]
    path = write(tmp_path / f"a.{form}", table)
    how = PAIRS.model_copy(update={"shard_bytes": 1000})
    assert len(sources.shards(str(path), how, {})) >= 6
    assert everything(path, how)[0].equals(everything(path, PAIRS)[0])


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_large_file_of_judged_pairs_is_cut_between_premises_only(tmp_path, form):
    kinds = ["e", "c", "n", "c", "e"]
    table = judged(*[(f"Premise {n}", f"Hypothesis {n} {i}", kinds[i]) for n in range(60) for i in range(5)])
    path = write(tmp_path / f"a.{form}", [row | {"id": n} for n, row in enumerate(table)])
    how = JUDGED.model_copy(update={"shard_bytes": 700})
    got = [sources.read(shard, how)[0] for shard in sources.shards(str(path), how, {})]
    assert len(got) >= 6
    assert sum(len(set(records["id"])) for records in got) == 60
    assert pl.concat(got).equals(everything(path, JUDGED)[0])


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_rows_appended_to_a_file_of_pairs_leave_earlier_shards_alone(tmp_path, form):
    table = [{"ask": f"Ask number {n}.", "reply": f"Reply number {n}."} for n in range(200)]
    how = PAIRS.model_copy(update={"shard_bytes": 1000})
    before = [shard.digest for shard in sources.shards(str(write(tmp_path / f"a.{form}", table)), how, {})]
    path = write(tmp_path / f"a.{form}", [*table, *table])
    after = [shard.digest for shard in sources.shards(str(path), how, {})]
    assert after[: len(before) - 1] == before[:-1]


def test_cuts_that_are_remembered_are_those_of_the_same_columns(tmp_path):
    table = judged(*[(f"Premise {n // 2}", f"Hypothesis {n}", "ec"[n % 2]) for n in range(100)])
    path, memory = write(tmp_path / "a.jsonl", table), {}
    for how in (
        Corpus(texts=("premise", "hypothesis"), shard_bytes=700),
        JUDGED.model_copy(update={"shard_bytes": 700}),
    ):
        remembered = sources.shards(str(path), how, memory)
        assert remembered == sources.shards(str(path), how, {})


# Sentences


def test_a_labelled_text_is_one_sentence_with_white_space_collapsed():
    found = [("f", 1, "f#1", "", "en", text, place) for place, text in enumerate(["One.  Two.\n", "Three?", "4"])]
    documents = corpus.documents(pl.DataFrame(found, schema=rows.RECORDS, orient="row"), Corpus(held_out=0))
    sentences = corpus.sentences(documents, whole=True)
    assert sentences.schema == tables.SENTENCES.empty().schema
    assert sentences.select("place", "record", "text").rows() == [(0, 0, "One. Two."), (1, 1, "Three?"), (2, 2, "4")]


def test_the_road_keeps_every_example_whole_up_to_sentences(tmp_path):
    (tmp_path / "corpus").mkdir()
    table = [{"ask": f"Ask {n}. Really?", "reply": "***" if n == 3 else f"Reply  {n}."} for n in range(6)]
    write(tmp_path / "corpus" / "a.jsonl", table)
    road = corpora.road(tmp_path / "store", tmp_path / "corpus", "corpus.texts=['ask','reply']")
    documents = road.documents(road.numbered())
    assert documents.count("quarantined") == documents.count("dropped.neither letter nor digit in column `reply`") == 1
    sentences = road.sentences(documents)
    frame = road.store.scan(sentences.pieces, ["document", "place", "text"]).collect()
    whole = frame.group_by("document").agg("place", "text")
    assert sorted(whole["text"].to_list()) == [[f"Ask {n}. Really?", f"Reply {n}."] for n in range(6) if n != 3]
    assert whole["place"].to_list() == [[0, 1]] * 5


def test_cutting_nothing_is_a_parameter_of_the_stage_of_labelled_texts(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"ask": "A", "reply": "B"}])
    road = corpora.road(tmp_path / "store", path, "corpus.texts=['ask','reply']")
    documents = road.documents(road.numbered())
    expected = piece_key("sentences", corpus.SENTENCES_VERSION, {"whole": True}, (documents.pieces[0].key,))
    assert road.sentences(documents).pieces[0].key == expected


def test_keys_of_a_corpus_without_labelled_texts_know_nothing_of_them(tmp_path):
    corpora.write(tmp_path / "corpus", {"a": ["One here.", "Two here."]})
    road = corpora.road(tmp_path / "store", tmp_path / "corpus")
    source = road.numbered()
    documents = road.documents(source)
    what = {
        "text": "text", "document": [], "order": [], "title": "", "language": "en", "language_column": "",
        "lines": False, "scattered": "refuse", "longest": 1_000_000, "held_out": 0.2, "split": 0,
    }  # fmt: skip
    digest = source.shards[0].digest
    assert documents.pieces[0].key == piece_key("documents", corpus.DOCUMENTS_VERSION, what, (digest,))
    sentences = road.sentences(documents).pieces[0].key
    assert sentences == piece_key("sentences", corpus.SENTENCES_VERSION, {}, (documents.pieces[0].key,))
