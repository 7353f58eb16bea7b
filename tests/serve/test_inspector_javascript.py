"""JavaScript is linted, and that of the inspector is type-checked, strictly, by its JSDoc comments."""

import json

import pytest

from tests.serve.javascript_tools import MISSING, ROOT, SETTINGS, find_tools, run_tool

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_tools() is None, reason=MISSING)]
FOLDERS = ("src/bridle/serve/inspector", "examples/service", "tests/serve/front_ends", "bench/foreign")
LINT = ("--config", SETTINGS / "eslint.config.cjs", "--max-warnings", "0")


def test_the_inspector_has_no_type_errors():
    done = run_tool("tsc", "--project", SETTINGS)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_no_script_has_a_lint_error():
    done = run_tool("eslint", *LINT, *FOLDERS)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_no_check_is_switched_off_in_a_file():
    """Nobody hides an error: a rule that is wrong here is changed for all, in the settings."""
    marks = ("@ts-ignore", "@ts-nocheck", "@ts-expect-error", "eslint-disable")
    files = [path for folder in FOLDERS for path in (ROOT / folder).glob("*.*js")]
    assert files and [path.name for path in files if any(mark in path.read_text() for mark in marks)] == []


def test_errors_are_found(tmp_path):
    files = ["a.js", str(SETTINGS / "inspector.d.ts")]
    settings = {"extends": str(SETTINGS / "tsconfig.json"), "include": [], "files": files}
    (tmp_path / "tsconfig.json").write_text(json.dumps(settings))
    wrong = f'import {{ h, tokens }} from "{ROOT}/src/bridle/serve/inspector/dom.js";\n'
    wrong += 'document.body.append(h("p", {}, 0), tokens("3"), nowhere);\n'
    (tmp_path / "a.js").write_text(wrong)
    found = run_tool("tsc", "--project", tmp_path).stdout
    assert found.count("error TS") == 3 and "nowhere" in found, found


def test_markup_from_text_is_refused():
    script = 'document.body.innerHTML = location.hash;\ndocument.body.insertAdjacentHTML("beforeend", "");\n'
    done = run_tool("eslint", *LINT, "--stdin", given=script)
    assert done.stdout.count("must never become markup") == 2, done.stdout
