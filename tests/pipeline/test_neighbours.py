"""Neighbour retrieval: which questions are asked, and the ranks of model and BM25."""

import numpy as np
import polars as pl
import pytest

from pipeline.neighbours import bm25_ranks, model_ranks, questions, random_figures, retrieval, words


def sentences(*documents, start=1):
    """Documents as lists of texts; None is a place left empty. A text's group is the number of its first letter."""
    rows = [
        {"document": number, "place": place, "group": ord(text[0].lower()), "text": text}
        for number, texts in enumerate(documents, start)
        for place, text in enumerate(texts)
        if text is not None
    ]
    schema = {"document": pl.UInt64, "place": pl.UInt32, "group": pl.UInt64, "text": pl.String}
    return pl.DataFrame(rows, schema=schema)


def asked(found):
    return [(found.texts[q], found.texts[t]) for q, t in zip(found.query_Q, found.target_Q, strict=True)]


def test_each_sentence_asks_for_the_next_of_its_document():
    found = questions(sentences(["a", "b", "c"], ["d", "e"]))
    assert asked(found) == [("a", "b"), ("b", "c"), ("d", "e")]


def test_the_order_of_the_rows_that_come_in_does_not_matter():
    rows = sentences(["a", "b", "c"], ["d", "e"])
    assert asked(questions(rows.sample(fraction=1, shuffle=True, seed=1))) == asked(questions(rows))


def test_a_gap_is_no_neighbour():
    assert asked(questions(sentences(["a", None, "b", "c"]))) == [("b", "c")]


def test_of_labelled_texts_the_first_asks_for_the_second_alone():
    found = questions(sentences(["a", "b", "c", "d", "e", "f"], ["g", "h", None]), texts=3)
    assert asked(found) == [("a", "b"), ("d", "e"), ("g", "h")]


def test_a_text_that_repeats_stands_once_where_it_comes_first():
    found = questions(sentences(["a", "b"], ["c", "A later", "d"]))
    assert found.texts == ["a", "b", "c", "d"]
    assert asked(found) == [("a", "b"), ("c", "a"), ("a", "d")]


def test_a_query_followed_by_its_own_text_is_not_asked_and_counted():
    found = questions(sentences(["a", "A again", "b"]))
    assert (asked(found), found.same_text) == ([("a", "b")], 1)


def test_a_pair_that_repeats_is_asked_once_and_counted():
    found = questions(sentences(["a", "b"], ["a", "b"], ["a", "b"]))
    assert (asked(found), found.repeated) == ([("a", "b")], 2)


def test_texts_stop_at_the_limit_in_the_order_of_documents():
    found = questions(sentences(["a", "b", "a"], ["c", "d", "e"], ["b", "f"]), most=4)
    assert found.texts == ["a", "b", "c", "d"]
    assert asked(found) == [("a", "b"), ("b", "a"), ("c", "d")]


def test_rows_lead_back_to_the_sentences_given():
    rows = sentences(["a", "b"], ["c", "d"]).reverse()
    found = questions(rows)
    assert rows["text"].gather(found.row_N.tolist()).to_list() == found.texts


def test_no_sentences_ask_nothing():
    found = questions(sentences())
    assert (found.texts, len(found.query_Q)) == ([], 0)
    assert len(model_ranks(np.zeros((0, 2)), np.zeros((0, 2)), found, np.matmul)) == 0


def test_chance_is_the_mean_over_all_places():
    places = np.arange(1, 26)
    expected = {"mrr": (1 / places).mean(), "hit@1": (places <= 1).mean(), "hit@10": (places <= 10).mean()}
    assert random_figures(25) == pytest.approx(expected)


def test_among_few_candidates_chance_always_hits():
    assert random_figures(4)["hit@10"] == 1


def test_retrieval_says_from_how_many_its_figures_come():
    assert retrieval(np.array([1, 4]), 9) == {"mrr": 0.625, "hit@1": 0.5, "hit@10": 1, "queries": 2, "candidates": 9}


def test_model_ranks_do_not_depend_on_the_blocks(monkeypatch):
    random = np.random.default_rng(0)
    left, right = random.normal(size=(2, 26, 5))
    found = questions(sentences([chr(97 + letter) for letter in range(26)]))
    score = lambda some, all_: some @ all_.T
    whole = model_ranks(left, right, found, score)
    monkeypatch.setattr("pipeline.neighbours.CELLS", 3 * 26)
    assert model_ranks(left, right, found, score).tolist() == whole.tolist()


def test_model_ranks_agree_with_a_slow_loop():
    random = np.random.default_rng(1)
    left, right = random.integers(-1, 2, size=(2, 20, 3))
    found = questions(sentences([chr(97 + letter) for letter in range(20)]))
    slow = []
    for query, target in zip(found.query_Q, found.target_Q, strict=True):
        scores = [int(left[query] @ right[other]) for other in range(20)]
        slow.append(1 + sum(scores[c] >= scores[target] for c in range(20) if c not in (query, target)))
    assert model_ranks(left, right, found, lambda some, all_: some @ all_.T).tolist() == slow


def test_a_score_of_the_wrong_shape_is_refused():
    found = questions(sentences(["a", "b", "c"]))
    with pytest.raises(ValueError, match=r"\(2, 1\); should be one number a pair, \(2, 3\)"):
        model_ranks(np.zeros((3, 2)), np.zeros((3, 2)), found, lambda some, _: some[:, :1])


def test_bm25_ranks_agree_with_the_formula_written_out():
    random, vocabulary = (
        np.random.default_rng(2),
        ["ash", "birch", "cedar", "elm", "fir", "hazel", "oak", "pine", "yew"],
    )
    texts = [chr(97 + n) + "q " + " ".join(random.choice(vocabulary, size=random.integers(2, 25))) for n in range(26)]
    found, bags = questions(sentences(texts)), [words(text) for text in texts]
    length = sum(map(len, bags)) / len(bags)

    def score(query, text):
        total = 0.0
        for word in query:
            having, times = sum(word in bag for bag in bags), text.count(word)
            idf = np.log(1 + (len(bags) - having + 0.5) / (having + 0.5))
            total += idf * times / (times + 1.2 * (1 - 0.75 + 0.75 * len(text) / length))
        return total

    slow = []
    for query, target in zip(found.query_Q, found.target_Q, strict=True):
        scores = [score(bags[query], bag) for bag in bags]
        slow.append(1 + sum(scores[c] >= scores[target] for c in range(len(bags)) if c not in (query, target)))
    assert bm25_ranks(found).tolist() == slow


def test_a_target_that_shares_no_word_with_its_query_comes_last_for_bm25():
    found = questions(sentences(["a red fox", "blue whales", "cold rain"]))
    assert bm25_ranks(found).tolist() == [2, 2]


def test_bm25_takes_texts_without_a_word():
    found = questions(sentences(["???", "both", "---"]))
    assert bm25_ranks(found).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Read CSVs: read_csv", ["read", "csv", "read", "csv"]),
        ("cities houses buses glass is eyes", ["city", "house", "buse", "glass", "is", "eye"]),
        ("天地 abc", ["天", "地", "abc"]),
    ],
)
def test_words_are_lower_case_singular_and_parted_at_underscores(text, expected):
    assert words(text) == expected
