"""Which part may know of which, and what a data worker need not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BELOW = {"flows": {"pipeline", "models"}, "pipeline": {"models"}, "models": set(), "recipes": set()}
SOURCES = [path for package in BELOW for path in sorted((ROOT / package).rglob("*.py"))]
PIPELINE = [path for path in SOURCES if (ROOT / "pipeline") in path.parents]
DATA = ("corpus", "sources", "pairs", "vocabulary", "batches", "store", "manifest", "cluster", "road", "tables")


def imported(path):
    """First names of all that a file imports, also within functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    plain = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    return {name.partition(".")[0] for name in [*plain, *(source for source, _ in taken(tree))]}


def taken(tree):
    """Module and line of each `from module import`."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [("." * node.level + (node.module or ""), node.lineno) for node in nodes]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_from_flows_to_pipeline_to_models(path):
    package = path.relative_to(ROOT).parts[0]
    assert imported(path) & set(BELOW) <= BELOW[package] | {package}


@pytest.mark.parametrize("path", sorted((ROOT / "models").glob("*.py")), ids=lambda path: path.name)
def test_the_mathematics_knows_neither_ray_nor_polars_nor_prefect_nor_mlflow(path):
    allowed = {"pyarrow"} if path.name == "counts_file.py" else set()  # a file format, as safetensors is one
    assert not (imported(path) - allowed) & {"ray", "polars", "pyarrow", "prefect", "mlflow", "obstore"}


@pytest.mark.parametrize("path", PIPELINE, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_flows_know_prefect(path):
    assert "prefect" not in imported(path)


def test_nothing_is_imported_by_a_relative_name():
    assert not [path.name for path in SOURCES for source, _ in taken(ast.parse(path.read_text())) if source[:1] == "."]


def loaded(*modules):
    """What a fresh process has loaded once it has imported these."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_data_stages_load_neither_torch_nor_ray_nor_mlflow():
    found = loaded(*(f"pipeline.{name}" for name in DATA), "models.recipe", "models.parts")
    assert not found & {"torch", "ray", "mlflow", "prefect", "transformers"}


def test_evaluating_and_registering_load_no_torch():
    assert "torch" not in loaded("pipeline.evaluate", "pipeline.register", "pipeline.report")
