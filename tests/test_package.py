"""What an installed wheel holds."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("flows", "pipeline", "models", "recipes")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy of the sources, so that nothing is left beside them."""
    place = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, place)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    (place / "README.md").touch()
    subprocess.run([sys.executable, "-c", BUILD, "dist"], cwd=place, check=True, capture_output=True)
    return next((place / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The wheel's content, away from the sources."""
    place = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(place)
    return place


def run(installed, code):
    """What a process prints that has the wheel in front of all else."""
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=installed, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.split()


def test_every_source_file_and_recipe_is_in_the_wheel(installed):
    every = [path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file()]
    wanted = {str(path.relative_to(ROOT)) for path in every if path.parent.name != "__pycache__"}
    assert {name for name in wanted if not (installed / name).is_file()} == set()


def test_an_installed_wheel_knows_all_recipes_and_reads_them(installed):
    code = """
import models, models.recipe
print(models.__file__, *(models.recipe.load(name).name for name in models.recipe.known()))
"""
    place, *names = run(installed, code)
    assert Path(place).is_relative_to(installed)
    assert names == sorted(path.stem for path in (ROOT / "recipes").glob("*.toml"))


def test_an_installed_wheel_resolves_a_recipe(installed):
    code = "from models import recipe, resolving; print(resolving.resolve(recipe.load('quick-thoughts')).name)"
    assert run(installed, code) == ["quick-thoughts"]


def test_the_command_is_in_the_wheel(installed):
    entry = next(installed.glob("*.dist-info")) / "entry_points.txt"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"firth = {project['scripts']['firth']}" in entry.read_text()
