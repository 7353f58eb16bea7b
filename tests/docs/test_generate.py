"""The documentation that comes from tables: up to date, and caught when it is not."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bridle.providers.catalogue import find_model
from bridle.providers.tables import load_tables

DOCS = Path(__file__).parents[2] / "docs"
GENERATE = DOCS / "generate.py"


def run(folder, *arguments):
    script = folder / "generate.py"
    return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=False)


def copy_docs(folder):
    """The pages, and the programs that they show."""
    shutil.copytree(DOCS, folder)
    shutil.copytree(DOCS.parent / "examples", folder.parent / "examples")
    (folder.parent / "bench").mkdir()
    for name in ("targets.py", "speed.json"):
        shutil.copy(DOCS.parent / "bench" / name, folder.parent / "bench" / name)


@pytest.mark.slow
def test_the_pages_are_up_to_date():
    checked = run(DOCS, "--check")
    assert checked.returncode == 0, checked.stderr


@pytest.mark.slow
def test_a_stale_page_is_named_and_can_be_mended(tmp_path):
    folder = tmp_path / "docs"
    copy_docs(folder)
    page = folder / "models.md"
    good = page.read_text()
    page.write_text(
        good.replace("| `anthropic:claude-opus-5` | 1 M |", "| `anthropic:claude-opus-5` | 2 M |")
    )
    stale = page.read_text()
    assert stale != good

    checked = run(folder, "--check")
    assert checked.returncode == 1
    assert checked.stderr == "stale: models.md (models); run: python docs/generate.py\n"
    assert page.read_text() == stale, "checking changes nothing"

    assert run(folder).returncode == 0
    assert page.read_text() == good


@pytest.mark.slow
def test_a_page_without_a_place_for_its_table_is_an_error(tmp_path):
    folder = tmp_path / "docs"
    copy_docs(folder)
    (folder / "models.md").write_text("# Models\n")
    assert "has no lines `<!-- begin endpoints -->`" in run(folder).stderr


def test_every_model_is_on_its_page():
    page = (DOCS / "models.md").read_text()
    tables = load_tables()
    for line in tables.model_groups.values():
        for name in line.ids:
            assert page.count(f":{name}` |") >= 2
    for name, row in tables.endpoints.items():
        assert row.simulated or f"| `{name}:` |" in page


def test_the_example_of_ones_own_file_works(tmp_path):
    (example,) = re.findall(r"```toml\n(.*?)```", (DOCS / "models.md").read_text(), re.DOTALL)
    path = tmp_path / "models.toml"
    path.write_text(example)
    model = find_model("gateway:our-tune", environ={"BRIDLE_MODELS": str(path)})
    assert model.endpoint.base_url == "https://models.example.com"
    assert model.price is not None


def test_a_name_without_a_meaning_is_named(tmp_path):
    folder = tmp_path / "docs"
    copy_docs(folder)
    table = folder / "meanings.toml"
    table.write_text(table.read_text().replace("max_tokens = ", "most_tokens = "))
    assert "[agent]: missing ['max_tokens'], unknown ['most_tokens']" in run(folder).stderr
