import polars as pl
import pytest
import xxhash

from models.recipe import Corpus
from pipeline import corpus, rows, tables


def records(*texts: tuple[str, int, str], language: str = "en") -> pl.DataFrame:
    """Records from (id, place, text)."""
    found = [("a.txt", at + 1, id, "", language, text, place) for at, (id, place, text) in enumerate(texts)]
    return pl.DataFrame(found, schema=rows.RECORDS, orient="row")


def cut(*texts: tuple[str, int, str], language: str = "en") -> list[tuple[int, int, str]]:
    """Place, record and text of each sentence."""
    found = corpus.sentences(corpus.documents(records(*texts, language=language), Corpus()))
    return found.select("place", "record", "text").rows()


# Documents


def test_documents_are_numbered_by_the_digest_of_their_id():
    found = corpus.documents(records(("a", 0, "One."), ("a", 1, "Two."), ("b", 0, "Three.")), Corpus(held_out=0))
    number = {id: xxhash.xxh3_64_intdigest(id.encode()) for id in "ab"}
    expected = sorted([(number["a"], 0, "One."), (number["a"], 1, "Two."), (number["b"], 0, "Three.")])
    assert found.select("document", "place", "text").rows() == expected
    assert not found["held_out"].any()


def test_forgotten_documents_are_left_out():
    found = corpus.documents(records(("a", 0, "One."), ("b", 0, "Two.")), Corpus(), [corpus.document_digest("a")])
    assert found["id"].to_list() == ["b"]


def test_no_records_give_no_documents_and_no_sentences():
    found = corpus.documents(records(), Corpus())
    assert found.schema == tables.DOCUMENTS.empty().schema
    assert corpus.sentences(found).schema == tables.SENTENCES.empty().schema


def test_the_share_held_out_is_about_what_was_asked():
    kept = sum(corpus.held_out(f"document {i}", 0.1) for i in range(20_000))
    assert kept == pytest.approx(2000, abs=4 * (20_000 * 0.1 * 0.9) ** 0.5)


def test_a_larger_share_holds_out_what_a_smaller_one_did():
    ids = [f"document {i}" for i in range(1000)]
    assert {id for id in ids if corpus.held_out(id, 0.1)} < {id for id in ids if corpus.held_out(id, 0.2)}


def test_being_held_out_says_nothing_about_the_number_of_a_document():
    ids = [f"document {i}" for i in range(20_000)]
    low = [id for id in ids if corpus.document_digest(id) < 2**63]
    assert sum(corpus.held_out(id, 0.5) for id in low) / len(low) == pytest.approx(0.5, abs=0.02)


def test_nothing_is_held_out_at_share_zero():
    assert not any(corpus.held_out(f"document {i}", 0.0) for i in range(1000))


# Sentences


def test_records_are_cut_into_sentences_with_places_through_the_document():
    assert cut(("a", 0, "Mr. Hay is in. Who  is\nout?"), ("a", 1, "Nobody.")) == [
        (0, 0, "Mr. Hay is in."),
        (1, 0, "Who is out?"),
        (2, 1, "Nobody."),
    ]


def test_a_missing_record_leaves_a_gap():
    assert cut(("a", 0, "One. Two."), ("a", 2, "Four."), ("a", 5, "Seven.")) == [
        (0, 0, "One."),
        (1, 0, "Two."),
        (3, 2, "Four."),
        (6, 5, "Seven."),
    ]


def test_a_missing_first_record_leaves_a_gap_at_the_beginning():
    assert cut(("a", 1, "Two.")) == [(1, 1, "Two.")]


def test_a_piece_without_letter_or_digit_is_dropped_and_leaves_a_gap():
    assert cut(("a", 0, "One."), ("a", 1, "* * *"), ("a", 2, "Two.")) == [(0, 0, "One."), (2, 2, "Two.")]


def test_white_space_between_sentences_leaves_no_gap():
    assert [place for place, _, _ in cut(("a", 0, "One here.\n\n\nTwo here. "))] == [0, 1]


def test_places_begin_anew_in_each_document():
    assert sorted(cut(("a", 0, "One."), ("b", 0, "Two."))) == [(0, 0, "One."), (0, 0, "Two.")]


def test_each_language_has_its_own_ends_of_sentences():
    assert [text for *_, text in cut(("a", 0, "他来了。她走了。"), language="zh")] == ["他来了。", "她走了。"]


def test_the_same_records_give_the_same_bytes(tmp_path):
    texts = [(f"d{i % 40}", i // 40, f"Sentence {i} is here. Another follows it.") for i in range(400)]
    texts.sort(key=lambda text: text[0])
    for name in "xy":
        corpus.sentences(corpus.documents(records(*texts), Corpus())).write_parquet(tmp_path / name)
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


# Groups


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("See below.", "see below"),
        ("“See below!”", "See  below"),
        ("ﬁne", "FINE"),
        ("a\u00a0b", "a b"),
        ("(See below.)", "... See below ..."),
    ],
)
def test_texts_that_differ_only_in_form_share_a_group(one, other):
    first, second = corpus.group(pl.Series([one, other]))
    assert first == second


@pytest.mark.parametrize(("one", "other"), [("See below.", "See above."), ("don't", "dont"), ("5", "$5"), ("C", "C++")])
def test_texts_that_say_something_else_do_not(one, other):
    first, second = corpus.group(pl.Series([one, other]))
    assert first != second


def test_a_group_is_the_digest_of_the_normal_form():
    assert corpus.group(pl.Series(["“See BELOW.”"])).to_list() == [xxhash.xxh3_64_intdigest(b"see below")]
