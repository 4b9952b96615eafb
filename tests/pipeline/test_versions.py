"""
A stage's version enters the keys of its pieces, so whoever changes what a stage writes has to raise it.

`stage_versions.json` remembers each version beside a digest of the code that decides the stage's output: its function,
and whatever that uses of ours, without comments and docstrings. Run this file to write it anew.
"""

import ast
import hashlib
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEMORY = Path(__file__).with_name("stage_versions.json")
COMMAND = "python tests/pipeline/test_versions.py"
STAGES = {  # the version, and the functions that make the stage's output
    "documents": ("pipeline.corpus.DOCUMENTS_VERSION", ["pipeline.road.make_documents"]),
    "sentences": ("pipeline.corpus.SENTENCES_VERSION", ["pipeline.road.make_sentences"]),
    "vocabulary": ("pipeline.vocabulary.VOCABULARY_VERSION", ["pipeline.vocabulary.pinned"]),
    "tokens": ("pipeline.vocabulary.TOKENS_VERSION", ["pipeline.road.make_tokens"]),
    "pairs": ("pipeline.pairs.PAIRS_VERSION", ["pipeline.road.make_pairs"]),
    "augmented": ("pipeline.paraphrases.AUGMENTED_VERSION", ["pipeline.paraphrases.make_augmented"]),
    "nearest": ("pipeline.mine.NEAREST_VERSION", ["pipeline.mine.make_nearest"]),
    "negatives": ("pipeline.mine.NEGATIVES_VERSION", ["pipeline.mine.make_negatives"]),
    "kin": ("pipeline.groups.KIN_VERSION", ["pipeline.groups.kindred"]),
    "sketches": ("pipeline.near.SKETCHES_VERSION", ["pipeline.near.make_sketches"]),
    "alike": ("pipeline.near.ALIKE_VERSION", ["pipeline.near.alike"]),
    "answered": ("pipeline.joining.ANSWERED_VERSION", ["pipeline.joining.make_answered"]),
    "joined": ("pipeline.joining.JOINED_VERSION", ["pipeline.joining.joined"]),
    "held_out": ("pipeline.batches.HELD_OUT_VERSION", ["pipeline.batches.held_out"]),
    "occurrences": ("pipeline.occurrences.OCCURRENCES_VERSION", ["pipeline.occurrences.shard_occurrences"]),
    "left_out": ("pipeline.leaving.LEFT_OUT_VERSION", ["pipeline.leaving._found"]),
    "batches": ("pipeline.batches.BATCHES_VERSION", ["pipeline.batches.epoch"]),
    "contrasts": ("pipeline.contrasts.CONTRASTS_VERSION", ["pipeline.contrasts.contrasts"]),
    "counts": ("pipeline.ngrams.COUNTS_VERSION", ["pipeline.ngrams.make_counts"]),
    "counted": ("pipeline.counted.COUNTED_VERSION", ["pipeline.counted.model"]),
    "weights": ("pipeline.run.WEIGHTS_VERSION", ["pipeline.run.Run"]),
    "vectors": ("pipeline.embed.VECTORS_VERSION", ["pipeline.embed.make_vectors"]),
    "scores": ("pipeline.scoring.SCORES_VERSION", ["pipeline.scoring.outcome"]),
}
NO_OUTPUT = {
    "pipeline.store",
    "pipeline.remote",
    "pipeline.cluster",
    "pipeline.manifest",
    "pipeline.settings",
    "models.recipe",
}


@cache
def module(root: Path, name: str) -> dict[str, ast.AST | str]:
    """What stands at a module's top by name: a definition, or for what is imported from us where it stands."""
    path = root / Path(*name.split("."))
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))
    found: dict[str, ast.AST | str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("pipeline", "models"):
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: node for at in targets for target in ast.walk(at) if isinstance(target, ast.Name)}
    return found


def is_module(root: Path, name: str) -> bool:
    path = root / Path(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def used(root: Path, names: list[str]) -> dict[str, ast.AST]:
    """Definitions of ours that some names need, directly or not, by name."""
    found: dict[str, ast.AST] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        where, _, what = name.rpartition(".")
        if name in found or where in NO_OUTPUT or is_module(root, name) or not is_module(root, where):
            continue
        node = module(root, where).get(what)
        if isinstance(node, str):
            waiting.append(node)
        elif node is not None:
            found[name] = node
            waiting += references(root, where, node)
    return found


def references(root: Path, where: str, node: ast.AST) -> Iterator[str]:
    own = ast.walk(node.args) if isinstance(node, ast.FunctionDef) else ()
    arguments = {at.arg for at in own if isinstance(at, ast.arg)}  # one of these hides a definition of its name
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and inner.id not in arguments:
            yield f"{where}.{inner.id}"
        elif isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
            there = module(root, where).get(inner.value.id)
            if isinstance(there, str) and is_module(root, there):
                yield f"{there}.{inner.attr}"


def plain(node: object) -> object:
    """A syntax tree as JSON can say it, the same in every Python: without places, docstrings and empty fields."""
    if isinstance(node, ast.AST):
        fields = {name: value for name, value in ast.iter_fields(node) if value not in (None, [])}
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node) is not None:
            fields["body"] = node.body[1:]
        return [type(node).__name__, {name: plain(value) for name, value in fields.items()}]
    return [plain(item) for item in node] if isinstance(node, list) else repr(node)


def record(stage: str, root: Path = ROOT) -> dict[str, object]:
    """Version and digest of a stage as they are now."""
    version, names = STAGES[stage]
    where, _, what = version.rpartition(".")
    constant = module(root, where)[what]
    assert isinstance(constant, ast.Assign)
    assert isinstance(constant.value, ast.Constant)
    code = {name: plain(node) for name, node in used(root, names).items() if not name.endswith("_VERSION")}
    text = json.dumps(code, sort_keys=True)
    return {"version": constant.value.value, "digest": hashlib.sha256(text.encode()).hexdigest()[:16]}


def refresh() -> None:
    """Remember all stages as they are now."""
    MEMORY.write_text(json.dumps({stage: record(stage) for stage in STAGES}, indent=2) + "\n", encoding="utf-8")


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_changed_has_another_version_or_the_same_output(stage):
    remembered, now = json.loads(MEMORY.read_text(encoding="utf-8"))[stage], record(stage)
    if remembered["version"] == now["version"]:
        assert remembered["digest"] == now["digest"], (
            f"code that stage {stage} uses has changed, its version has not: if the stage writes other bytes now, "
            f"raise {STAGES[stage][0]}; in either case run `{COMMAND}` and commit stage_versions.json with the change"
        )
    assert remembered == now, f"stage {stage} has a new version: run `{COMMAND}` and commit stage_versions.json"


# The guard itself, on a project of three lines

PROJECT = {
    "pipeline/__init__.py": "",
    "pipeline/pairs.py": "from pipeline import far\nfrom pipeline.near import SIZE\nPAIRS_VERSION = 1\nUNUSED = 1\n",
    "pipeline/road.py": "from pipeline import pairs\ndef make_pairs():\n    '''Doc.'''\n    return pairs.make()  # x\n",
    "pipeline/near.py": "SIZE = 3\n",
    "pipeline/far.py": "def away():\n    return 1\n",
}
MAKE = "def make():\n    return far.away() + SIZE\n"


def digest(folder: Path, **changes: str) -> object:
    """Digest of stage pairs in a project with some files changed."""
    for name, text in PROJECT.items():
        text = text + MAKE if name.endswith("pairs.py") else text
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(changes.get(Path(name).stem, text))
    return record("pairs", folder)["digest"]


@pytest.mark.parametrize(
    "changes",
    [
        {"road": "from pipeline import pairs\ndef make_pairs():\n\n    return pairs.make()\n"},
        {"pairs": PROJECT["pipeline/pairs.py"].replace("UNUSED = 1", "UNUSED = 2") + MAKE},
        {"pairs": PROJECT["pipeline/pairs.py"].replace("VERSION = 1", "VERSION = 2") + MAKE},
    ],
    ids=["docstring and comment", "a name that is not used", "the version"],
)
def test_what_decides_no_output_leaves_the_digest(tmp_path, changes):
    assert digest(tmp_path / "one") == digest(tmp_path / "other", **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"near": "SIZE = 4\n"},
        {"far": "def away():\n    return 2\n"},
        {"road": "from pipeline import pairs\ndef make_pairs():\n    return pairs.make() + 1\n"},
    ],
    ids=["a number in another file", "a function in another module", "the stage's own function"],
)
def test_what_the_stage_uses_changes_the_digest(tmp_path, changes):
    assert digest(tmp_path / "one") != digest(tmp_path / "other", **changes)


def test_the_code_of_a_stage_is_found_through_files_and_dictionaries():
    assert "pipeline.prose.markdown" in used(ROOT, STAGES["documents"][1])
    assert "pipeline.pairs.neighbours" in used(ROOT, STAGES["pairs"][1])
    assert {"models.batch.lanes", "models.objectives.softmax"} <= set(used(ROOT, STAGES["weights"][1]))


if __name__ == "__main__":
    refresh()
    print(f"wrote {MEMORY.relative_to(ROOT)}", file=sys.stderr)
