import numpy as np
import polars as pl
import pytest

from models.recipe import load
from pipeline.vocabulary import Vocabulary, train
from pipeline.word_vectors import WordVectorsError, check, paths, read, scarce, tables, words

TREES = {"<unk>": 0, "oak": 1, "elm": 2, ".": 3}


def file(tmp_path, *lines: str) -> str:
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_words_of_the_file_get_their_numbers_and_others_are_zero(tmp_path):
    found = read(file(tmp_path, "fir 9 9", "elm 0.5 -2", "oak 1e-1 3"), TREES)
    assert found.tolist() == [[0, 0], pytest.approx([0.1, 3]), [0.5, -2], [0, 0]]


def test_a_header_is_passed_over(tmp_path):
    assert read(file(tmp_path, "1 3", "oak 1 2 3"), TREES)[1].tolist() == [1, 2, 3]


def test_a_line_of_another_width_is_an_error_with_its_number(tmp_path):
    with pytest.raises(WordVectorsError, match=r"words\.txt, line 2: 3 numbers after the word, should be 2"):
        read(file(tmp_path, "elm 1 2", "oak 1 2 3"), TREES)
    with pytest.raises(WordVectorsError, match=r"words\.txt, line 2: 1 numbers after the word, should be 2"):
        read(file(tmp_path, "elm 1 2", "oak 1"), TREES)


def test_what_is_no_number_is_an_error_with_its_line(tmp_path):
    with pytest.raises(WordVectorsError, match="line 2"):
        read(file(tmp_path, "elm 1 2", "oak 1 x"), TREES)


def test_an_entry_of_several_words_is_passed_over(tmp_path):
    found = read(file(tmp_path, "elm 1 2", ". . . 5 6", "oak at elm 7 8"), TREES)
    assert found.tolist() == [[0, 0], [0, 0], [1, 2], [0, 0]]


def test_a_file_without_a_known_word_is_an_error(tmp_path):
    with pytest.raises(WordVectorsError, match="none of the 4 words of the vocabulary"):
        read(file(tmp_path, "Oak 1 2"), TREES)


def test_numbers_of_a_vocabulary_may_have_gaps(tmp_path):
    assert read(file(tmp_path, "oak 1 2"), {"oak": 5}).shape == (6, 2)


# A recipe's tables


def frozen(path: str = ""):
    return load("quick-thoughts-multichannel", [f"encoder.f2.table={path!r}"])


def test_the_table_of_a_recipe_is_found_by_its_path(tmp_path):
    path = file(tmp_path, "oak 1 2")
    tokenizer = train(lambda: iter([["oak elm"]]), frozen().tokenizer)
    assert {
        name: tuple(table.shape) for name, table in tables(frozen(path), Vocabulary(tokenizer, (0, 1, 1))).items()
    } == {path: (3, 2)}


def test_a_frozen_tower_without_a_table_is_refused_before_any_work():
    with pytest.raises(
        WordVectorsError, match=r"encoder\.f2 is frozen and has no table.*--set encoder\.f2\.table=PATH"
    ):
        check(frozen())


def test_a_table_that_is_not_there_is_refused_before_any_work(tmp_path):
    with pytest.raises(WordVectorsError, match=r'encoder\.f2\.table is ".*/nowhere\.txt": no such file'):
        check(frozen(str(tmp_path / "nowhere.txt")))


def test_a_table_that_is_there_is_accepted(tmp_path):
    check(frozen(file(tmp_path, "oak 1 2")))


def test_a_recipe_without_tables_needs_none():
    check(load("quick-thoughts"))


# What is wrong with a table


def test_a_header_says_how_many_numbers_a_line_has(tmp_path):
    with pytest.raises(
        WordVectorsError, match=r"words\.txt, line 3: 2 numbers after the word, should be 3 as the first"
    ):
        read(file(tmp_path, "2 3", "oak 1 2 3", "fir 1 2"), TREES)


def test_a_word_that_is_there_twice_is_an_error_with_both_rows(tmp_path):
    with pytest.raises(WordVectorsError, match=r'words\.txt, line 3: "elm" stands in row 1 too; drop one of the rows'):
        read(file(tmp_path, "elm 1 2", "oak 1 2", "elm 3 4"), TREES)


@pytest.mark.parametrize("line", [" 1 2", "", "\u00a0 1 2"])
def test_a_blank_word_is_an_error_with_its_row(tmp_path, line):
    with pytest.raises(WordVectorsError, match=r"words\.txt, line 2: a blank word; drop the row"):
        read(file(tmp_path, "elm 1 2", line), TREES)


@pytest.mark.parametrize("value", ["nan", "inf", "-Infinity", "1e40"])
def test_a_number_that_is_not_finite_is_an_error_with_its_line(tmp_path, value):
    with pytest.raises(WordVectorsError, match=r'words\.txt, line 2: "oak" has (nan|-?inf), should be finite'):
        read(file(tmp_path, "elm 1 2", f"oak 1 {value}"), TREES)


def test_tabs_and_several_blanks_part_a_word_and_its_numbers(tmp_path):
    found = read(file(tmp_path, "elm\t1\t2", "oak  3   4", "fir \t5\t 6"), TREES)
    assert found.tolist() == [[0, 0], [3, 4], [1, 2], [0, 0]]


@pytest.mark.parametrize("lines", [("elm",), ("oak,1,2", "elm,3,4"), ("1 0", "elm")])
def test_a_word_without_numbers_is_an_error_with_its_line(tmp_path, lines):
    with pytest.raises(
        WordVectorsError, match=rf"words\.txt, line {len(lines) if lines[0] == '1 0' else 1}: no number after"
    ):
        read(file(tmp_path, *lines), TREES)


@pytest.mark.parametrize("line", ["fir 1", "fir", "fir 1  ", "fir  1", "fir 1 2 3"])
def test_a_line_of_a_word_that_is_not_wanted_has_the_same_width(tmp_path, line):
    with pytest.raises(WordVectorsError, match=r"words\.txt, line 2: \d numbers after the word, should be 2"):
        read(file(tmp_path, "elm 1 2", line), TREES)


def test_a_line_without_numbers_is_an_error_where_one_number_is_wanted(tmp_path):
    with pytest.raises(WordVectorsError, match=r"words\.txt, line 2: no|line 2: 0 numbers after the word, should be 1"):
        read(file(tmp_path, "elm 1", "fir"), TREES)


def test_more_words_than_numbers_at_a_lines_end_are_no_entry_of_several_words(tmp_path):
    with pytest.raises(WordVectorsError, match=r"words\.txt, line 2: 3 numbers after the word, should be 2"):
        read(file(tmp_path, "elm 1 2", "oak at 7 x"), TREES)


def test_an_entry_of_several_words_gives_no_word(tmp_path):
    assert list(words(file(tmp_path, "elm 1 2", ". . . 5 6", "oak 1 2"))) == ["elm", "oak"]


def test_a_header_counts_the_lines(tmp_path):
    with pytest.raises(WordVectorsError, match=r"words\.txt: 2 lines of words, should be 3 as the first line says"):
        read(file(tmp_path, "3 2", "oak 1 2", ". . 3 4"), TREES)


def test_a_comma_in_a_number_is_named(tmp_path):
    with pytest.raises(WordVectorsError, match=r"words\.txt, line 1: not a number: 0,1; should be as 0\.1"):
        read(file(tmp_path, "oak 2 0,1"), TREES)


# Binary files


def binary(tmp_path, rows, width=2, count=None, end=b"\n"):
    path = tmp_path / "words.bin"
    body = b"".join(word.encode() + b" " + np.array(numbers, "<f4").tobytes() + end for word, numbers in rows)
    path.write_bytes(f"{count or len(rows)} {width}\n".encode() + body)
    return str(path)


@pytest.mark.parametrize("end", [b"", b"\n"], ids=["as gensim writes it", "as word2vec writes it"])
def test_a_binary_file_holds_the_same_as_a_text_file(tmp_path, end):
    rows = [("fir", [9, 9]), ("elm", [0.5, -2]), ("oak", [0.25, 3])]
    text = file(tmp_path, *(f"{word} {one} {other}" for word, (one, other) in rows))
    assert read(binary(tmp_path, rows, end=end), TREES).tolist() == read(text, TREES).tolist()


def test_a_binary_file_that_ends_too_early_or_goes_on_is_an_error_with_its_row(tmp_path):
    rows = [("elm", [0.5, -2]), ("oak", [0.25, 3])]
    with pytest.raises(WordVectorsError, match=r"words\.bin, row 3: the file ends, should hold 3 words of 2 numbers"):
        read(binary(tmp_path, rows, count=3), TREES)
    with pytest.raises(WordVectorsError, match=r"words\.bin, row 1: .* bytes behind the last"):
        read(binary(tmp_path, rows, count=1), TREES)


def test_a_word_that_a_binary_file_holds_twice_is_an_error_with_both_rows(tmp_path):
    with pytest.raises(WordVectorsError, match=r'words\.bin, row 2: "elm" stands in row 1 too'):
        read(binary(tmp_path, [("elm", [0.5, -2]), ("elm", [0.25, 3])]), TREES)


def test_a_number_of_a_binary_file_that_is_not_finite_is_an_error_with_its_row(tmp_path):
    with pytest.raises(WordVectorsError, match=r'words\.bin, row 2: "oak" has nan, should be finite'):
        read(binary(tmp_path, [("elm", [0.5, -2]), ("oak", [0.25, np.nan])]), TREES)


# Packages


def package(tmp_path, monkeypatch, words=("elm", "oak"), numbers=((0.5, -2), (0.1, 3)), name="tree-vectors"):
    """An installed package that carries word vectors."""
    monkeypatch.syspath_prepend(tmp_path)
    inside, about = tmp_path / "tree_vectors" / "data", tmp_path / "tree_vectors-1.0.dist-info"
    inside.mkdir(parents=True)
    about.mkdir()
    pl.DataFrame({"index": words}).write_parquet(inside / "words.parquet")
    np.save(inside / "numbers.npy", np.array(numbers, np.float32))
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "RECORD").write_text("tree_vectors/data/words.parquet,,\ntree_vectors/data/numbers.npy,,\n")
    return name


def test_a_package_holds_words_beside_their_numbers(tmp_path, monkeypatch):
    name = package(tmp_path, monkeypatch)
    assert read(name, TREES).tolist() == [[0, 0], pytest.approx([0.1, 3]), [0.5, -2], [0, 0]]
    assert [path.name for path in paths(name)] == ["words.parquet", "numbers.npy"]
    check(frozen(name))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("elm", "elm"), '"elm" stands in row 1 too'),
        (("elm", " "), "row 2: a blank word"),
        (("elm",), "should be one row"),
    ],
)
def test_what_is_wrong_with_a_package_is_told(tmp_path, monkeypatch, words, said):
    name = package(tmp_path, monkeypatch, words)
    with pytest.raises(WordVectorsError, match=said):
        read(name, TREES)


def test_a_number_of_a_package_that_is_not_finite_is_an_error_with_its_row(tmp_path, monkeypatch):
    name = package(tmp_path, monkeypatch, numbers=((0.5, -2), (np.inf, 3)))
    with pytest.raises(WordVectorsError, match=rf'{name}, row 2: "oak" has inf, should be finite'):
        read(name, TREES)


def test_a_package_without_word_vectors_is_refused():
    with pytest.raises(WordVectorsError, match=r"package pytest carries 0 \.parquet and 0 \.npy files"):
        paths("pytest")


def test_a_name_of_no_file_and_no_package_is_refused_before_any_work():
    with pytest.raises(WordVectorsError, match=r'table is "no-such-words": no such file, and no package of that name'):
        check(frozen("no-such-words"))


# How much of the corpus they cover


def test_more_than_half_of_the_words_without_a_vector_are_told(tmp_path):
    tokenizer = train(lambda: iter([["oak elm ash"]]), frozen().tokenizer)
    number = Vocabulary(tokenizer, (0, 0, 0, 0)).words()["oak"]
    counted = lambda oaks: Vocabulary(tokenizer, tuple(oaks if at == number else 2 for at in range(4)))
    path = file(tmp_path, "oak 1 2")
    assert scarce(frozen(path), counted(5)) == [f"{path}: 6 of 11 words have no word vector"]
    assert scarce(frozen(path), counted(6)) == []
