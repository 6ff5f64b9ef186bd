"""The pages of docs/ lead somewhere: every link, every anchor, every path that a source names.

Anchors are those that GitHub makes: a heading in lower case, its punctuation left out, its blanks
as hyphens.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
PAGES: Final = [
    *(
        ROOT / name
        for name in ("README.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "CHANGELOG.md")
    ),
    *sorted(DOCS.rglob("*.md")),
]
SOURCES: Final = [
    path
    for room in ("src", "studies", "tests", "benchmarks", "examples")
    for path in (ROOT / room).rglob("*.py")
]

FENCED: Final = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
PATH: Final = re.compile(r"(?<![\w/.-])docs/[\w/-]+\.(?:md|json|png|svg)")

CITED: Final = re.compile(r"\b(siena|gryphon|parametric|proxy) ((?:[2-6](?:\.\d)?|IV)\b)")
"""A section of a paper, as "siena 5.2": what docs/concepts/papers.md has a heading for."""

CLASS: Final = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
"""A public class of a module."""

UNKNOWN: Final = re.compile(r"\b(?:DESIGN|SEMANTICS|HARD|ANCHORS|STYLE)(?:\.md| [\"\d])")
"""Plans of the project that are not in the repository; docs/concepts/design.md is."""

NAME: Final = re.compile(r"`([A-Z]\w*)(?:\.(\w+))?(?:\([^`\n]*\))?`")
"""A class or constant, perhaps with a member: names that a rename leaves behind in pages."""

OF_OTHERS: Final = {"PALIO_PYTHON", "PALIO_VENV", "Price", "Uint8Array"}
"""Names of the Makefile, of JavaScript, and of an example's column."""

README_LINES_MAX: Final = 150
"""A newcomer reads no more before the first link."""

QUICKSTART_LINES_MAX: Final = 60
"""One screen."""


@cache
def texts() -> dict[Path, str]:
    """All pages and sources."""
    return {path: path.read_text("utf-8") for path in [*PAGES, *SOURCES]}


def prose_of(path: Path) -> str:
    """A page without its blocks of code."""
    return FENCED.sub("", path.read_text(encoding="utf-8"))


def links_of(path: Path) -> list[tuple[Path, str]]:
    """File and anchor of every link of a page that does not leave the repository."""
    targets = [target for target in LINK.findall(prose_of(path)) if "://" not in target]
    parted = [target.partition("#") for target in targets]
    return [((path.parent / file).resolve() if file else path, at) for file, _, at in parted]


def anchors_of(path: Path) -> set[str]:
    headings = re.findall(r"^#+ +(.*?) *$", prose_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_of_a_page_leads_somewhere() -> None:
    for page in PAGES:
        for target, anchor in links_of(page):
            assert target.exists(), f"{page.relative_to(ROOT)}: {target} is not there"
            if anchor:
                assert anchor in anchors_of(target), f"{page.relative_to(ROOT)}: {target}#{anchor}"


def test_the_index_leads_to_every_page() -> None:
    index = DOCS / "index.md"
    linked = {target for target, _ in links_of(index)}
    assert {page for page in DOCS.rglob("*.md") if page != index} <= linked


def test_every_path_into_docs_exists() -> None:
    named = {(path, name) for path, text in texts().items() for name in PATH.findall(text)}
    assert not {(path, name) for path, name in named if not (ROOT / name).exists()}


def test_every_section_of_a_paper_that_is_cited_is_told() -> None:
    papers = prose_of(DOCS / "concepts" / "papers.md")
    told = set(re.findall(r"^### (\w+ [\w.]+)$", papers, re.MULTILINE))
    cited = {
        (path, f"{paper} {section}")
        for path, text in texts().items()
        for paper, section in CITED.findall(text)
    }
    assert not {(path, section) for path, section in cited if section not in told}


def test_the_citation_names_every_paper() -> None:
    papers = prose_of(DOCS / "concepts" / "papers.md")
    titles = re.findall(r"^\| \w+ \| .*: \*(.+)\*, (\d{4}) \|$", papers, re.MULTILINE)
    assert len(titles) == 5
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    for title, year in titles:
        assert f'title: "{title}"\n    year: {year}\n' in citation


def test_the_readme_and_quickstarts_stay_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= README_LINES_MAX
    for page in (DOCS / "quickstart").glob("*.md"):
        assert len(page.read_text("utf-8").splitlines()) <= QUICKSTART_LINES_MAX, page.name


def test_no_document_is_cited_that_a_reader_cannot_open() -> None:
    assert not {path: found for path, text in texts().items() if (found := UNKNOWN.findall(text))}


def test_every_class_and_constant_that_a_page_names_exists() -> None:
    known = OF_OTHERS.union(*(re.findall(r"\w+", texts()[path]) for path in SOURCES))
    named = {
        (page, name)
        for page in PAGES
        for names in NAME.findall(prose_of(page))
        for name in filter(None, names)
    }
    assert len(named) > 500
    assert not {(str(page), name) for page, name in named if name not in known}


def test_every_file_on_the_way_of_an_event_exists() -> None:
    page = prose_of(DOCS / "concepts" / "life-of-an-event.md")
    files = set(re.findall(r"`(\w+/[\w/]+\.py)`", page))
    assert len(files) > 10
    assert not {file for file in files if not (ROOT / "src" / "palio" / file).exists()}


def test_every_file_that_an_addition_changes_exists() -> None:
    _, _, additions = prose_of(ROOT / "CONTRIBUTING.md").partition("## How to add")
    files = set(re.findall(r"`(\w+/[\w/]+\.(?:py|lark))`", additions))
    assert len(files) > 40
    homes = (ROOT / "src" / "palio", ROOT)
    assert not {file for file in files if not any((home / file).exists() for home in homes)}


def rows_of(page: str, columns: int) -> list[list[str]]:
    """The rows of all tables of a page that have so many columns, without their heads."""
    lines = [line for line in page.splitlines() if line.startswith("| ") and "`" in line]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if len(row) == columns]


def test_the_glossary_has_at_most_sixty_nouns_each_in_its_file() -> None:
    nouns, _, _ = prose_of(DOCS / "glossary.md").partition("## One name, two things")
    rows = rows_of(nouns, 3)
    assert 0 < len(rows) <= 60
    assert len({noun for noun, _, _ in rows}) == len(rows)
    for noun, _, file in rows:
        path = ROOT / "src" / "palio" / file.strip("` ")
        assert path.exists(), f"{noun}: {file}"
        assert noun.lower() in path.read_text("utf-8").lower(), f"{noun} is not in {file}"


def homonyms() -> dict[str, set[str]]:
    """Public classes of several rooms that share a name, and their rooms."""
    rooms: dict[str, set[str]] = {}
    home = ROOT / "src" / "palio"
    for path in home.rglob("*.py"):
        room = path.relative_to(home).parts[0].removesuffix(".py")
        for name in CLASS.findall(path.read_text("utf-8")):
            rooms.setdefault(name, set()).add(room)
    return {name: found for name, found in rooms.items() if len(found) > 1}


def test_classes_of_two_rooms_that_share_a_name_are_told_apart() -> None:
    _, _, page = prose_of(DOCS / "glossary.md").partition("## One name, two things")
    told = {
        name.strip("` "): set(rooms.split(", "))
        for names, rooms, _ in rows_of(page, 3)
        for name in names.split(", ")
    }
    assert told == homonyms()


def test_anchors_are_those_of_github(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# How far? `a.b`, really\n\n```\n# no heading\n```\n## Two-way\n", "utf-8")
    assert anchors_of(page) == {"how-far-ab-really", "two-way"}
