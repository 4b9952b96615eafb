import pytest

from models.recipe import load
from pipeline.vocabulary import Vocabulary, train
from pipeline.word_vectors import WordVectorsError, check, read, tables

TREES = {"<unk>": 0, "oak": 1, "elm": 2, ".": 3}


def file(tmp_path, *lines: str) -> str:
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_words_of_the_file_get_their_numbers_and_others_are_zero(tmp_path):
    found = read(file(tmp_path, "fir 9 9", "elm 0.5 -2", "oak 1e-1 3"), TREES)
    assert found.tolist() == [[0, 0], pytest.approx([0.1, 3]), [0.5, -2], [0, 0]]


def test_a_header_is_passed_over(tmp_path):
    assert read(file(tmp_path, "2 3", "oak 1 2 3"), TREES)[1].tolist() == [1, 2, 3]


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
