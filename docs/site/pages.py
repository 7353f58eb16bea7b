"""Pages of the site: which files of the repository become which pages, and how their links change.

The table of contents is docs/README.md: its sections and rows decide what is a guide, a concept or a reference page.
Files that a page links to and that are no pages (programs, tests, modules) become pages of their own that show them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
CONTENTS = ROOT / "docs" / "README.md"
PROJECT_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
HOME = "README.md"
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\((?:[\w./]*/)?pictures/([\w.-]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LANGUAGES = {
    ".py": "python",
    ".toml": "toml",
    ".json": "json",
    ".md": "markdown",
    ".html": "html",
    ".js": "javascript",
}


@dataclass(frozen=True)
class Section:
    """One caption of the navigation and its pages, as paths in the repository."""

    caption: str
    pages: tuple[str, ...]


def read_sections() -> list[Section]:
    """The sections of docs/README.md in their order, then the decisions and the project's own pages."""
    sections = []
    for part in CONTENTS.read_text(encoding="utf-8").split("\n## ")[1:]:
        caption, _, body = part.partition("\n")
        pages = [
            _repository_path("docs", target) for _, target in LINK.findall(body) if not _is_outside(target)
        ]
        kept = [page for page in dict.fromkeys(pages) if page != HOME and "/decisions/" not in page]
        sections.append(Section(caption, tuple(kept)))
    decisions = sorted(
        path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "decisions").glob("*.md")
    )
    return [*sections, Section("Decisions", tuple(decisions)), Section("Project", PROJECT_PAGES)]


def describe_pages() -> dict[str, str]:
    """What each page is for, as docs/README.md says it, after a colon; by its path in the repository."""
    found: dict[str, str] = {}
    for row in re.findall(r"^\| .* \|$", CONTENTS.read_text(encoding="utf-8"), re.MULTILINE):
        links = [target for _, target in LINK.findall(row) if not _is_outside(target)]
        texts = [cell.strip() for cell in row.strip("|").split("|") if not LINK.search(cell)]
        if len(links) == 1 and texts:
            found[_repository_path("docs", links[0])] = f": {texts[0]}"
    return found


def read_title(page: str) -> str:
    """The first heading of a page."""
    first = (ROOT / page).read_text(encoding="utf-8").lstrip().partition("\n")[0]
    return first.removeprefix("# ").strip()


def map_pages(sections: Iterable[Section]) -> dict[str, str]:
    """Each page's path in the repository, and its path in the site."""
    mapped = {HOME: "index.md", "docs/README.md": "index.md"}
    for section in sections:
        folder = section.caption.partition(":")[0].lower()
        for page in section.pages:
            path = PurePosixPath(page)
            name = (f"{path.parent.name}.md" if path.name == "README.md" else path.name).lower()
            mapped[page] = name if folder == "start" else f"{folder}/{name}"
    return mapped


def move_links(text: str, page: str, mapped: Mapping[str, str], shown: set[str]) -> str:
    """The text of a page with its links leading to pages of the site.

    `shown` collects the files that need a page of their own. Code blocks stay as they are.
    """
    here = PurePosixPath(mapped[page]).parent

    def moved(link: re.Match[str]) -> str:
        label, target = link.groups()
        path, mark, anchor = target.partition("#")
        if not path or _is_outside(target):
            return link.group()
        source = _repository_path(str(PurePosixPath(page).parent), path)
        if source not in mapped and not (ROOT / source).exists():
            raise SystemExit(f"{page} links to {target}, which does not exist")
        if source not in mapped:
            shown.add(source)
        place = mapped.get(source) or source_page(source)
        return f"[{label}]({_relative(place, here)}{mark}{anchor})"

    pictures = _relative("pictures", here)
    pieces, last = [], 0
    for fence in [*FENCE.finditer(text), None]:
        prose = LINK.sub(moved, text[last : fence.start() if fence else len(text)])
        pieces += [PICTURE.sub(rf"![\1]({pictures}/\2)", prose), fence.group() if fence else ""]
        last = fence.end() if fence else last
    return "".join(pieces)


def shorten_table_paths(text: str) -> str:
    """The text with modules and test files of table rows under their short names, so that the columns fit a screen."""

    def shortened(row: re.Match[str]) -> str:
        names = re.sub(r"`src/bridle/([^`]+)`", r"`\1`", row.group())
        names = re.sub(r"`tests/[^`]*?(test_\w+)\.py(?:::\w+)?`", r"`\1`", names)
        return re.sub(r"(`test_\w+`)(?:, \1)+", r"\1", names)

    return re.sub(r"^\|.*", shortened, text, flags=re.MULTILINE)


def source_page(source: str) -> str:
    """The path in the site of the page that shows a file or a folder."""
    return f"files/{source.rstrip('/')}.md"


def show_source(source: str, mapped: Mapping[str, str], shown: set[str]) -> str:
    """A page that shows a file, or lists a folder; files that it links to are added to `shown`."""
    path = ROOT / source
    if path.is_dir():
        return (
            f"---\norphan: true\n---\n# {source.rstrip('/')}\n\n{_list_files(path, f'{path.name}/', shown)}"
        )
    if path.suffix == ".md":
        text = move_links(
            path.read_text(encoding="utf-8"), source, {**mapped, source: source_page(source)}, shown
        )
        files = f"\n## Files\n\n{_list_files(path.parent, '', shown)}" if path.name == "README.md" else ""
        return f"---\norphan: true\n---\n{text}{files}"
    language = LANGUAGES.get(path.suffix, "text")
    text = path.read_text(encoding="utf-8")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"---\norphan: true\n---\n# {source}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _list_files(folder: Path, prefix: str, shown: set[str]) -> str:
    files = [
        each
        for each in sorted(folder.iterdir())
        if each.is_file() and each.suffix in LANGUAGES and each.stat().st_size
    ]
    shown.update(each.relative_to(ROOT).as_posix() for each in files)
    return "".join(f"- [{each.name}]({prefix}{each.name}.md)\n" for each in files)


def _is_outside(target: str) -> bool:
    return "://" in target or target.startswith("mailto:")


def _repository_path(folder: str, target: str) -> str:
    parts: list[str] = []
    for part in PurePosixPath(folder, target.partition("#")[0]).parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _relative(place: str, folder: PurePosixPath) -> str:
    target = PurePosixPath(place)
    common = 0
    for ours, theirs in zip(folder.parts, target.parts, strict=False):
        if ours != theirs:
            break
        common += 1
    return "/".join([".."] * (len(folder.parts) - common) + list(target.parts[common:]))
