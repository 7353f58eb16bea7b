"""Build the documentation site: pages, navigation, search, the reference of public names.

    python docs/site/build.py                 build/site/index.html
    python docs/site/build.py --out FOLDER    elsewhere
    python docs/site/build.py --open          and open it in a browser

A link without a target, a page outside the navigation or a broken table ends the build with exit code 1.
"""

import argparse
import shutil
import sys
import webbrowser
from pathlib import Path

from api_pages import write_api_pages
from pages import (
    HOME,
    ROOT,
    Section,
    describe_pages,
    map_pages,
    move_links,
    read_sections,
    read_title,
    shorten_table_paths,
    show_source,
    source_page,
)
from sphinx.cmd.build import build_main

HERE = Path(__file__).parent
PICTURES = ROOT / "docs" / "pictures"
SKILL = ROOT / "SKILL.md"
"""What a coding agent should know before it writes a program with Bridle."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build" / "site", metavar="FOLDER", help="default: build/site"
    )
    parser.add_argument("--open", action="store_true", help="open the site in a browser")
    asked = parser.parse_args()
    source = asked.out.parent / f"{asked.out.name}-source"
    for folder in (source, asked.out):
        shutil.rmtree(folder, ignore_errors=True)
    count = write_pages(source)
    print(f"{count} pages in {source}", file=sys.stderr)
    options = ["-b", "html", "-c", str(HERE), "-W", "--keep-going", "-q", "-d", str(source / ".doctrees")]
    if code := build_main([*options, str(source), str(asked.out)]):
        return code
    (asked.out / "llms.txt").write_text(list_for_models(), encoding="utf-8")
    shutil.copy(SKILL, asked.out / "SKILL.md")
    print(asked.out / "index.html")
    if asked.open:
        webbrowser.open((asked.out / "index.html").as_uri())
    return 0


def write_pages(folder: Path) -> int:
    """Write the source of every page; the number of pages."""
    sections = read_sections()
    mapped = map_pages(sections)
    api = write_api_pages()
    shown: set[str] = set()
    pages = {
        place: shorten_table_paths(move_links((ROOT / page).read_text(encoding="utf-8"), page, mapped, shown))
        for page, place in mapped.items()
        if place != "index.md"
    }
    home = move_links((ROOT / HOME).read_text(encoding="utf-8"), HOME, mapped, shown)
    pages["index.md"] = home + write_navigation(sections, mapped, sorted(api))
    pages |= api
    done: set[str] = set()
    while left := shown - done:
        for each in sorted(left):
            pages[source_page(each)] = show_source(each, mapped, shown)
        done |= left
    for place, text in pages.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shutil.copytree(PICTURES, folder / "pictures")
    return len(pages)


def list_for_models() -> str:
    """The file llms.txt: what Bridle is, and every page with what it is for, for programs that read the site."""
    name, claim, *_ = (ROOT / HOME).read_text(encoding="utf-8").split("\n\n")
    sections = read_sections()
    mapped = map_pages(sections)
    about = describe_pages()
    parts = [f"{name}\n\n> {claim.strip('*')}\n\nFor coding agents: [SKILL.md](SKILL.md)\n"]
    for section in sections:
        lines = [
            f"- [{read_title(page)}]({mapped[page].removesuffix('.md')}.html){about.get(page, '')}"
            for page in section.pages
        ]
        parts.append(f"## {section.caption}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def write_navigation(sections: list[Section], mapped: dict[str, str], api: list[str]) -> str:
    """The navigation as tables of contents that only the sidebar shows."""
    trees = [(section.caption, [mapped[page] for page in section.pages]) for section in sections]
    reference = next(number for number, (caption, _) in enumerate(trees) if caption == "Reference")
    trees.insert(reference + 1, ("Public names", api))
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n:maxdepth: 1\n\n" + "\n".join(pages) + "\n```\n"
        for caption, pages in trees
    )


if __name__ == "__main__":
    sys.exit(main())
