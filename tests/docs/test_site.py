"""The site: every page is in its navigation, its links lead somewhere, its search knows its pages, its pictures are real."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.suite.paths import load_program
from tests.suite.shared_builds import build_once

pytest.importorskip("sphinx", reason="the site needs Sphinx: make .venv/.ready installs it")

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs" / "site"
pages = load_program("docs/site/pages.py")


class Page(HTMLParser):
    """The links and the ids of a page."""

    def __init__(self, path):
        super().__init__()
        self.links, self.ids = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.links += [found[key] for key in ("href", "src") if found.get(key)]
        self.ids.add(found.get("id"))


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build_once(tmp_path_factory, "site", build_site)


def build_site(folder):
    command = [sys.executable, str(SITE / "build.py"), "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{folder / 'index.html'}\n"


def test_every_page_of_the_documentation_is_in_the_site():
    mapped = pages.map_pages(pages.read_sections())
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert written - set(mapped) == set(), "link it in docs/README.md"


@pytest.mark.full
@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere(built):
    read = {path: Page(path) for path in built.rglob("*.html")}
    assert len(read) > 100
    broken = []
    for path, page in read.items():
        for link in page.links:
            target, anchor = urldefrag(link)
            if re.match(r"[a-z]+:|//", link):
                continue
            file = (path.parent / unquote(target).partition("?")[0]).resolve() if target else path
            file = file / "index.html" if file.is_dir() else file
            if not file.exists() or (anchor and file in read and unquote(anchor) not in read[file].ids):
                broken.append(f"{path.relative_to(built)}: {link}")
    assert broken == []


@pytest.mark.full
@pytest.mark.slow
def test_the_site_asks_no_other_host(built):
    """Scripts, styles, fonts and pictures come from the site itself; only links of the text lead outside."""
    for path in built.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(
            r"""<(?:script|img|link|iframe)[^>]*(?:src|href)=["'](?:https?:)?//[^"']*""", text
        ), path


@pytest.mark.full
@pytest.mark.slow
def test_programs_find_every_page_and_the_skill(built):
    listed = (built / "llms.txt").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]+)\)", listed)
    assert "guides/memory.html" in targets and "SKILL.md" in targets
    assert [target for target in targets if not (built / target).exists()] == []
    assert "): give an agent functions, types, programs" in listed


@pytest.mark.full
@pytest.mark.slow
def test_pages_have_their_icon_and_the_controls(built):
    page = (built / "tools.html").read_text(encoding="utf-8")
    assert 'href="_static/favicon.svg' in page and 'src="_static/site.js' in page
    assert "decisions: -20" in (built / "_static" / "language_data.js").read_text(encoding="utf-8")


@pytest.mark.full
@pytest.mark.slow
def test_search_knows_the_words_of_the_guides(built):
    index = (built / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    places = [found[kind].get("redact", []) for kind in ("terms", "titleterms")]
    numbers = {number for each in places for number in ([each] if isinstance(each, int) else each)}
    assert "guides/audit" in {found["docnames"][number] for number in numbers}


@pytest.mark.full
@pytest.mark.slow
def test_public_names_have_their_signature_and_docstring(built):
    text = (built / "api" / "agents.html").read_text(encoding="utf-8")
    for name in ("Agent", "Agent.run", "Agent.resume", "SharedBudget", "fork_session"):
        assert f"<h2>{name}<a" in text or f"<h3>{name}<a" in text, name
    plain = re.sub(r"<[^>]+>", "", text)
    assert "async def run(" in plain and "C_contra" in plain


def test_a_link_to_nothing_ends_the_build(tmp_path):
    with pytest.raises(SystemExit, match=r"README.md links to docs/none.md, which does not exist"):
        pages.move_links("[x](docs/none.md)", "README.md", {"README.md": "index.md"}, set())


def test_links_follow_their_pages():
    mapped = {"docs/tools.md": "guides/tools.md", "docs/wire.md": "concepts/wire.md", "README.md": "index.md"}
    shown = set()
    text = "[a](wire.md#x) [b](../README.md) ![c](pictures/run.svg) [d](../examples/demo.py) [e](https://a.b/c)\n```\n[f](wire.md)\n```"
    assert pages.move_links(text, "docs/tools.md", mapped, shown) == (
        "[a](../concepts/wire.md#x) [b](../index.md) ![c](../pictures/run.svg) [d](../files/examples/demo.py.md) "
        "[e](https://a.b/c)\n```\n[f](wire.md)\n```"
    )
    assert shown == {"examples/demo.py"}


def test_pictures_are_those_that_the_program_takes():
    taking = load_program("docs/site/take_pictures.py")
    named = {f"{name}.svg" for name in (*taking.TERMINALS, "log", "demo")} | {
        f"inspector-{name}.png" for name in taking.INSPECTOR
    }
    assert {path.name for path in (ROOT / "docs" / "pictures").iterdir()} == named
    used = {
        name
        for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        for name in re.findall(r"!\[[^\]]*\]\([\w./]*pictures/([\w.-]+)\)", path.read_text(encoding="utf-8"))
    }
    assert used == named


def test_a_terminal_is_drawn_with_its_colours(tmp_path):
    taking = load_program("docs/site/take_pictures.py")
    drawn = taking.draw_terminal(["\x1b[1mbold\x1b[0m <b> \x1b[36mcyan\x1b[0m"])
    assert (
        '<tspan font-weight="bold">bold</tspan><tspan> &lt;b&gt; </tspan><tspan fill="#76e3ea">cyan</tspan>'
        in drawn
    )
    assert taking._overwritten("first\r\x1b[2Ksecond") == "second"


def test_paths_in_tables_are_short():
    row = "| a model | `src/bridle/core/x.py` | `tests/core/test_x.py::test_a`, `tests/core/test_x.py::test_b` |"
    assert pages.shorten_table_paths(f"`src/bridle/a.py`\n{row}\n") == (
        "`src/bridle/a.py`\n| a model | `core/x.py` | `test_x` |\n"
    )


def test_the_film_shows_what_the_terminal_showed(monkeypatch):
    monkeypatch.syspath_prepend(str(SITE))
    recording = load_program("docs/site/record_demo.py")
    output = [(0.0, "\x1b[36mfirst\x1b[0m\r\n"), (0.5, "waiting"), (9.5, "\r\x1b[2Kdone\r\n"), (9.6, "last")]
    shown = recording.find_texts(recording.shorten_pauses(output))
    assert [(each.row, each.text, each.end) for each in shown] == [
        (0, "\x1b[36mfirst\x1b[0m", None), (1, "waiting", 1.6), (1, "done", None), (2, "last", None),
    ]  # fmt: skip
    film = recording.draw_film(shown)
    assert film.count("<text ") == 4 and "prefers-reduced-motion" in film
