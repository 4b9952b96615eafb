import sys
from pathlib import Path

import polars as pl
import pytest

from models.recipe import Corpus
from pipeline import docstrings, pydoc, sources
from pipeline.shard import SourceError

PLAIN = Corpus()

PACKAGE = {
    "__init__.py": '"""A package that was made up."""\nraise SystemExit("must not be imported")\n',
    "_core/_heap.py": '''"""Heaps of numbers are kept here."""


class Heap:
    """
    A heap hands out its smallest number.

    It keeps the others.
    """

    def push(self, number):
        """Add a number to the heap.

        Parameters
        ----------
        number : int
            The number that is added.
        """
        def inner():
            """Sift the number up the heap."""

    if True:
        async def pop(self):
            """Take the smallest number away."""
''',
    "tests/test_heap.py": '"""Tests are not read here."""\n',
    "_vendored/other.py": '"""Other people wrote all this."""\n',
    "broken.py": '"""Never closed\n',
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name, code in PACKAGE.items():
        (tmp_path / "firthheaps" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "firthheaps" / name).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "firthheaps"


def read(uri: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    got = [sources.read(shard, PLAIN) for shard in sources.shards(uri, PLAIN, {})]
    return pl.concat([records for records, _ in got]), pl.concat([bad for _, bad in got])


# Packages


def test_modules_are_documents_and_docstrings_are_records_in_source_order(package):
    records, _ = read("pydoc:firthheaps")
    heap = records.filter(pl.col("id") == "firthheaps._core._heap")
    assert heap.select("place", "row", "title", "text").rows() == [
        (0, 1, "firthheaps", "Heaps of numbers are kept here."),
        (1, 5, "firthheaps.Heap", "A heap hands out its smallest number."),
        (2, 5, "firthheaps.Heap", "It keeps the others."),
        (3, 12, "firthheaps.Heap.push", "Add a number to the heap."),
        (4, 20, "firthheaps.Heap.push.inner", "Sift the number up the heap."),
        (5, 24, "firthheaps.Heap.pop", "Take the smallest number away."),
    ]
    assert heap["source"].unique().to_list() == ["firthheaps/_core/_heap.py"]


def test_packages_are_read_without_importing_them(package):
    read("pydoc:firthheaps")
    assert "firthheaps" not in sys.modules


def test_tests_and_vendored_code_are_left_out(package):
    assert read("pydoc:firthheaps")[0]["id"].unique(maintain_order=True).len() == 2


def test_a_file_that_does_not_parse_goes_to_quarantine(package):
    _, bad = read("pydoc:firthheaps")
    assert bad["source"].to_list() == ["firthheaps/broken.py"]
    assert bad["reason"][0].startswith("not Python: ")


def test_an_unknown_package_is_an_error_with_a_remedy():
    with pytest.raises(SourceError, match=r"pydoc:firth_nowhere: no such package; install it"):
        sources.shards("pydoc:firth_nowhere", PLAIN, {})


def test_a_package_without_source_is_an_error():
    with pytest.raises(SourceError, match=r"pydoc:sys: no Python source"):
        sources.shards("pydoc:sys", PLAIN, {})


def test_a_single_module_of_the_standard_library_can_be_named():
    (shard,) = sources.shards("pydoc:heapq", PLAIN, {})
    records, _ = sources.read(shard, PLAIN)
    assert records["id"].unique().to_list() == ["heapq"]


def test_a_new_module_changes_one_bucket(package, monkeypatch):
    monkeypatch.setattr(pydoc, "BUCKET_BYTES", 100)
    before = {shard.digest for shard in sources.shards("pydoc:firthheaps", PLAIN, {})}
    (package / "more.py").write_text('"""One more."""\n')
    after = {shard.digest for shard in sources.shards("pydoc:firthheaps", PLAIN, {})}
    assert len(before) > 1
    assert len(after - before) == 1


def test_unchanged_files_are_not_read_again(package, monkeypatch):
    memory: dict[str, object] = {}
    before = sources.shards("pydoc:firthheaps", PLAIN, memory)
    monkeypatch.setattr("pipeline.files.open_file", lambda uri: pytest.fail(f"{uri} is opened"))
    assert sources.shards("pydoc:firthheaps", PLAIN, memory) == before


def test_a_module_that_changes_before_it_is_read_is_an_error(package):
    (shard,) = sources.shards("pydoc:firthheaps", PLAIN, {})
    (package / "broken.py").write_text("x = 1\n")
    with pytest.raises(SourceError, match="changed while it was read"):
        sources.read(shard, PLAIN)


def test_the_default_corpus_is_cut_into_shards_that_keep_cores_busy():
    shards = sources.shards("pydoc:", PLAIN, {})
    assert 8 <= len(shards) <= 32
    assert {"standard", "numpy", "polars", "torch"} == {shard.name.split()[1] for shard in shards}
    assert all(Path(path).suffix == ".py" for shard in shards for path in shard.files)


# Docstrings

STRIPPED = {
    "doctest": "Add two numbers here.\n\n>>> speak()\nThree it is, and nobody said more on it.\n\nThe sum is exact.",
    "literal block": "Add two numbers here.\n\nThe sum is exact.\n\n    total = add(1, 2)\n",
    "fence": ("Add two numbers here.\n\n```python\nadd(one, two, and_three)\n```\n\nThe sum is exact."),
    "directive": ("Add two numbers here.\n\n.. code-block:: python\n\n    some words are here\n\nThe sum is exact."),
    "version": ("Add two numbers here.\n\n.. versionadded:: 1.2\n   It was added late.\n\nThe sum is exact."),
    "numpy": (
        "Add two numbers here.\n\n"
        "Parameters\n----------\na : int\n    The first of the two.\n\n"
        "    More on it.\n\n"
        "Notes\n-----\nThe sum is exact."
    ),
    "numpy last": (
        "Add two numbers here.\n\nThe sum is exact.\n\nSee Also\n--------\nsubtract : Take a number away.\n"
    ),
    "google": (
        "Add two numbers here.\n\n"
        "Args:\n    a: the first of the two.\n\n"
        "    b: the other of the two.\n\n"
        "The sum is exact."
    ),
    "fields": (
        "Add two numbers here.\n\n"
        "The sum is exact.\n\n"
        ":param a: the first of the two\n    numbers to be added\n:returns: their sum of course"
    ),
    "table": ("Add two numbers here.\n\n===== =====\nleft  right words here\n===== =====\n\nThe sum is exact."),
    "terms": ("Add two numbers here.\n\na -- the first of the two\nb -- the other of the two\n\nThe sum is exact."),
    "definitions": ("Add two numbers here.\n\nfirst number\n    The first of the two.\n\nThe sum is exact."),
    "traceback": (
        "Add two numbers here.\n\nTraceback (most recent call last):\n  File one line two\n\nThe sum is exact."
    ),
    "headings": "Adding and more\n===============\nAdd two numbers here.\n\nThe sum is exact.",
    "signature": "add(first, second, third) -> int\n\nAdd two numbers here.\n\nThe sum is exact.",
    "two words": "Add two numbers here.\n\nDeprecated alias.\n\nThe sum is exact.",
    "note": "Add two numbers here.\n\n.. note::\n    The sum is exact.",
    "note in google style": "Add two numbers here.\n\nNote:\n    The sum is exact.",
    "items": "- Add two numbers\n  here.\n- The sum is exact.",
    "wrapped": "Add two\nnumbers here.\n\nThe sum\nis exact.",
}


@pytest.mark.parametrize("docstring", STRIPPED.values(), ids=STRIPPED)
def test_only_prose_is_kept(docstring):
    assert docstrings.prose(docstring) == ["Add two numbers here.", "The sum is exact."]


MARKED = {
    "See :class:`Heap` for more.": "See Heap for more.",
    "See :py:meth:`~firth.Heap.push` for more.": "See push for more.",
    "See :ref:`the guide <guide-to-heaps>` for more.": "See the guide for more.",
    "See `the guide <https://example.org>`_ for more.": "See the guide for more.",
    "See [the guide](https://example.org) for more.": "See the guide for more.",
    "Uses ``push`` and `pop` and **both** or *one*.": "Uses push and pop and both or one.",
    "As shown in [1]_, it works.": "As shown in, it works.",
    "Calls a**b and f(*args, **kwargs) as is.": "Calls a**b and f(*args, **kwargs) as is.",
    "Takes `endings' as they are.": "Takes 'endings' as they are.",
    "Take the smallest number away. Returns:": "Take the smallest number away.",
    "Opens a .txt file::": "Opens a .txt file:",
}


@pytest.mark.parametrize(("marked", "plain"), MARKED.items())
def test_markup_is_unwrapped_to_words(marked, plain):
    assert docstrings.unmarked(marked) == plain


@pytest.mark.parametrize(
    "text",
    [
        "a, b, c = f(x)[0] + {1: 2} * 3 == g(y)",
        "Two words",
        "12 34 56 78",
        "firth.heaps.heap",
        r"The mean is \\frac{\\sum x}{n}, as known to all who count.",
        "...",
    ],
)
def test_what_is_no_prose_is_known(text):
    assert not docstrings.is_prose(text)


# Questions and answers

ASKS = Corpus(texts=("question", "answer"), label="label", labels="right")
LAKES = [
    (line, f"lakes.{name}", text)
    for line, name, *texts in (
        (1, "shore", "Walk along the shore.", "Stones are passed on the left.", "Sand is not."),
        (9, "swim", "Swim across the lake."),
        (20, "fish", "Catch a fish.", "It is let go again."),
        (30, "boat", "Row a boat.", "Oars are needed."),
    )
    for text in texts
]


def test_a_docstring_s_first_paragraph_asks_for_the_others_among_those_of_its_module():
    assert pydoc.questions(LAKES) == [
        (1, "lakes.shore", "Walk along the shore.", None),
        (1, "lakes.shore", "Stones are passed on the left. Sand is not.", 1),
        (20, "lakes.fish", "It is let go again.", 0),
        (30, "lakes.boat", "Oars are needed.", 0),
        (20, "lakes.fish", "Catch a fish.", None),
        (20, "lakes.fish", "It is let go again.", 1),
        (1, "lakes.shore", "Stones are passed on the left. Sand is not.", 0),
        (30, "lakes.boat", "Oars are needed.", 0),
        (30, "lakes.boat", "Row a boat.", None),
        (30, "lakes.boat", "Oars are needed.", 1),
        (1, "lakes.shore", "Stones are passed on the left. Sand is not.", 0),
        (20, "lakes.fish", "It is let go again.", 0),
    ]


def test_wrong_answers_are_a_few_that_differ_and_are_the_same_each_time():
    many = [(at, f"m.f{at}", text) for at in range(40) for text in (f"Do thing {at}.", f"It is done {at % 20}.")]
    found = pydoc.questions(many)
    assert found == pydoc.questions(many)
    wrong: dict[str, list[str]] = {}
    question = ""
    for _, _, text, label in found:
        question = text if label is None else question
        wrong.setdefault(question, []).extend([text] if label == 0 else [])
    for at in range(40):
        some = wrong[f"Do thing {at}."]
        assert len(some) == len(set(some)) == pydoc.WRONG and f"It is done {at % 20}." not in some
    assert len({tuple(some) for some in wrong.values()}) > 30


def test_an_answer_ends_when_it_is_long_enough():
    long = "word " * 60
    paragraphs = [(1, "m.f", text) for text in ("Do it.", long, long, "Never reached.")]
    assert pydoc.questions(paragraphs)[1][2] == f"{long.strip()} {long.strip()}".replace("  ", " ")


def test_questions_of_a_package_are_records_of_their_module(package):
    got = [sources.read(shard, ASKS) for shard in sources.shards("pydoc:firthheaps", ASKS, {})]
    records = pl.concat([records for records, _ in got])
    assert records.select("id", "title", "text", "place", "label").rows() == [
        ("firthheaps._core._heap", "firthheaps.Heap", "A heap hands out its smallest number.", 0, None),
        ("firthheaps._core._heap", "firthheaps.Heap", "It keeps the others.", 1, 1),
    ]


def test_labelled_texts_that_are_no_answers_are_refused_all_the_same():
    with pytest.raises(SourceError, match="pydoc: has no columns"):
        sources.shards("pydoc:heapq", Corpus(texts=("a", "b")), {})
