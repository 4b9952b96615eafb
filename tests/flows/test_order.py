import pytest

from flows.order import planned
from models.recipe import RecipeError


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["pairs={kind='triples'}", "corpus.texts=['a', 'b', 'c']", "batches.rows=400"],
            r"batches\.rows is 400; .*multiple of 3.* 399 or 402",
        ),
        (["pairs={kind='single'}", "augment=['none', 'repeat', 'none']"], r"augment has 3 entries; .* has 2 views"),
        (
            ["pairs={kind='twins'}"],
            r'pairs\.kind is "twins"; known: groups, neighbours, none, pairs, qa, single, triples',
        ),
    ],
)
def test_examples_that_do_not_fit_are_refused_before_any_work(overrides, message):
    with pytest.raises(RecipeError, match=message):
        planned("quick-thoughts", overrides)


@pytest.mark.parametrize(
    ("recipe", "overrides", "message"),
    [
        ("simcse-unsup", ["pairs.kind=neighbours"], r'"other-view", but pairs\.kind "neighbours" has no second view'),
        ("simcse-unsup", ["terms.0.candidates.hard=true"], r'hard wants pairs\.kind = "triples", not "single"'),
        ("simcse-sup", ["corpus.texts=['a','b']"], r'"triples" wants 3 texts a row; .* give 2: name 3 columns'),
        ("simcse-unsup", ["pairs.kind=pairs"], r'"pairs" wants 2 texts a row; .* give running text'),
        ("consert", ["view=['none','none','shuffle']"], r"view has 3 entries; .* should have 1, for all, or 2"),
        ("simcse-unsup", ["encoder.path=no/such"], r'encoder\.path is "no/such": no folder here, and the hub'),
    ],
)
def test_views_and_texts_that_do_not_go_together_are_refused(recipe, overrides, message):
    with pytest.raises(RecipeError, match=message):
        planned(recipe, ["encoder.path=", "encoder.layers=1", "encoder.width=8", "encoder.heads=2", *overrides])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("encoder.heads=0", r"encoder\.heads is 0; should be at least 1"),
        ("encoder.layers=0", r"encoder\.layers is 0; should be at least 1"),
        ("encoder.dropout=1", r"encoder\.dropout is 1\.0; it is a share"),
        ("encoder.dropout=nan", r"encoder\.dropout is nan; should be a number"),
        ("terms.0.similarity.temperature=nan", r"similarity\.temperature is nan; should be a number"),
        ("corpus.texts=['a','a']", r"corpus\.texts names a column twice: a, a"),
    ],
)
def test_numbers_that_no_encoder_takes_are_refused(setting, message):
    with pytest.raises(RecipeError, match=message):
        planned("simcse-unsup", ["encoder.path=", "encoder.width=8", "encoder.heads=2", setting])


def test_labelled_texts_are_asked_for_their_positives_alone():
    texts = ["corpus.texts=['premise','hypothesis']", "corpus.label=gold"]
    plan = planned("simcse-sup", ["encoder.path=", "encoder.width=8", "encoder.heads=2", *texts])
    assert plan.evaluation[0].options == {"texts": 3}


def test_an_nli_file_gives_triples():
    texts = ["corpus.texts=['premise','hypothesis']", "corpus.label=gold"]
    assert planned("simcse-sup", ["encoder.path=", "encoder.width=8", "encoder.heads=2", *texts]).corpus.label == "gold"


def test_rated_pairs_are_read_before_any_work(tmp_path):
    path, rows = tmp_path / "pairs.tsv", ("an owl\ta bird\t4", "a boat\ta ship\t5", "a boat\tan owl\t0")
    path.write_text("\n".join(["sentence1\tsentence2\tgold", *rows]))
    order = lambda score: planned(
        "quick-thoughts-bag", [f"evaluation=[{{kind='sts', path='{path}', score='{score}'}}]"]
    )
    assert order("gold").evaluation[0].options["path"] == str(path)
    with pytest.raises(RecipeError, match=r"evaluation\.0: pairs\.tsv: no column score; columns there: sentence1"):
        order("score")


def test_rated_pairs_that_are_not_there_are_refused():
    with pytest.raises(RecipeError, match=r"evaluation\.0: source .*no/pairs\.tsv: no such file"):
        planned("quick-thoughts-bag", ["evaluation=[{kind='sts', path='no/pairs.tsv'}]"])


def test_a_teacher_that_is_not_there_is_refused_before_any_work(tmp_path):
    taught = "terms=[{candidates={kind='all'}, similarity={kind='cosine'}, objective={kind='gram'}}]"
    settings = ["encoder.path=", "encoder.layers=1", "encoder.width=8", "encoder.heads=2", taught]
    with pytest.raises(RecipeError, match=r'teacher\.model is ".*nobody", which is no model folder: no recipe\.json'):
        planned("simcse-unsup", [*settings, f"teacher={{model='{tmp_path / 'nobody'}'}}"])
