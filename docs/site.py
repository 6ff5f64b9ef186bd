"""A hook of `make docs`: pages of the repository's root become pages of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = (
    "README.md",
    "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md",
    "CHANGELOG.md",
    "SECURITY.md",
)

UP: Final = re.compile(rf"\]\((?:\.\./)+(?=(?:{'|'.join(map(re.escape, PAGES))})\b)")
"""A link from a page of docs/ to one of the root."""

OUTSIDE: Final = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+((?:benchmarks|deploy|examples|src|tests)/[^)\s]+)\)"
)
"""A link to a file that is not on the site."""

FENCE: Final = re.compile(r"^( *```\w+) [^`\n]+$", re.MULTILINE)
"""The head of a snippet with words for the tests that run it."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the root, whose links to docs/ lead to their neighbours there."""
    for name in PAGES:
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        file = File.generated(config, name, content=text)
        # MkDocs takes every README for the index of its folder, which is docs/index.md here; and
        # some file systems take SECURITY.html for security.html.
        file.dest_uri = "project-" + name.lower().replace(".md", ".html")
        files.append(file)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Lead links to the root's pages to their places in the site; name files that are not there."""
    depth = page.file.src_uri.count("/")
    markdown = UP.sub("](" + "../" * depth, FENCE.sub(r"\1", markdown))
    return OUTSIDE.sub(r"\1 (`\2`)", markdown)
