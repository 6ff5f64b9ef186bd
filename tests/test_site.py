"""The documentation as a site (`make docs`): no broken link, nothing fetched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import palio
import palio.errors
import palio.matching
import palio.spark
import palio.testing

ROOT: Final = Path(__file__).parents[1]
API: Final = ROOT / "docs" / "reference" / "api.md"

ROOT_PAGES: Final = (
    *("README.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md"),
    *("CHANGELOG.md", "SECURITY.md"),
)

MODULES: Final = {"client", "errors", "language", "matching", "model", "spark", "testing"}
"""Public modules: of these the page has the names that follow."""

FETCHED: Final = re.compile(r'<(?:script|link|img)\b[^>]*(?:src|href)="(?:https?:)?//')


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="mkdocs is missing; install the extra docs")
    folder = tmp_path_factory.mktemp("site")
    made = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert "WARNING" not in made.stderr
    return folder


def test_the_site_is_built_without_a_warning_and_fetches_nothing(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        assert not FETCHED.search(page.read_text("utf-8")), page


def test_every_page_has_a_file_of_its_own_and_nothing_else_has(site: Path) -> None:
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).with_suffix(".html") for path in docs.rglob("*.md")}
    pages |= {Path("project-" + name.lower()).with_suffix(".html") for name in ROOT_PAGES}
    assert {path.relative_to(site) for path in site.rglob("*.html")} == {*pages, Path("404.html")}
    assert len({str(page).lower() for page in pages}) == len(pages)
    assert "the map of the documentation<" in (site / "index.html").read_text("utf-8")
    assert "Across machines<" in (site / "project-readme.html").read_text("utf-8")
    assert not list(site.rglob("*.py*"))


def test_the_reference_has_every_public_name(site: Path) -> None:
    page = (site / "reference" / "api.html").read_text("utf-8")
    spark = set(palio.spark.__all__)
    expected = (set(palio.__all__) - MODULES) | spark | {"Index", "to_batches", "Network", "run"}
    shown = {each.rpartition(".")[2] for each in re.findall(r'id="(palio\.[\w.]+)"', page)}
    assert expected - shown == set()
    errors = {
        name
        for name, kind in vars(palio.errors).items()
        if name[0].isupper() and isinstance(kind, type)
    }
    assert len(errors) > 20
    assert errors - shown == set()
