"""The tests are a package: helpers are imported by their full names, and no test is imported."""

import re
import tomllib

import pytest

from tests.suite.paths import ROOT, name_module

FOUND_BY_NAME = {"__init__", "conftest", "sitecustomize"}
"""Files that Python or pytest look for."""
IMPORT = re.compile(
    r"(?:^|[;\"'])[ \t]*(?:from ([\w.]+) import (\([^)]*\)|[^\n;\"'#]*)|import ([\w.]+))", re.MULTILINE
)
"""Imports of a module, and of the programs that it has as strings."""
MODULES = sorted(path for path in (ROOT / "tests").rglob("*.py") if path.stem not in FOUND_BY_NAME)
FULL_NAMES = {path.stem: name_module(path) for path in MODULES}


def list_faults(code):
    for source, names, module in IMPORT.findall(code):
        package, *inner = (source or module).split(".")
        if package in FULL_NAMES:
            yield f"{package}: import it by its full name, {FULL_NAMES[package]}"
        elif package == "tests" and any(
            each.startswith("test_") for each in (*inner, *re.findall(r"\w+", names))
        ):
            yield f"{source or module} {names}: move what others need of a test into a module of its own"


@pytest.mark.parametrize("folder", ["bench", "docs", "evals", "tests"])
def test_helpers_are_imported_by_their_full_names_and_tests_not_at_all(folder):
    files = [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.py")]
    faults = {
        str(path): [*list_faults((ROOT / path).read_text(encoding="utf-8"))]
        for path in files
        if ".work" not in path.parts
    }
    assert {path: found for path, found in faults.items() if found} == {}


@pytest.mark.parametrize(
    "code",
    [
        "from {helper} import scale",
        "import {helper}",
        "    import {helper} as sizes",
        "from tests.tidy.{test} import MODULES",
        "from tests.tidy import {test}",
        "from tests.tidy import (\n    __init__,\n    {test},\n)",
        "import tests.tidy.{test}",
        "PROGRAM = '''\nimport sys\nfrom {helper} import scale\n'''",
        'PROGRAM = f"from tests.tidy import {test}; print(1)"',
        "PROGRAM = 'import sys; from {helper} import scale'",
    ],
)
def test_a_bare_name_and_an_import_of_a_test_are_found(code):
    assert len([*list_faults(code.format(helper="campaign", test="test_package"))]) == 1


def test_full_names_are_in_order():
    code = "import json\nfrom tests.suite.campaign import scale\nfrom tests.suite import guard\nfrom campaigns import x"
    assert [*list_faults(code)] == []


def test_every_folder_with_modules_is_a_package():
    folders = {path.parent for path in MODULES}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_only_the_root_of_the_project_is_on_the_path():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["pytest"]["ini_options"]["pythonpath"] == ["."]
