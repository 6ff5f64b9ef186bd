"""What an installation fetches is pinned: versions and hashes of packages, commits of actions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
PIN = re.compile(r"([a-z0-9-]+)==([0-9][\w.]*)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)")


def pins() -> dict[str, Version]:
    return {
        canonicalize_name(name): Version(number) for name, number, _ in PIN.findall(CONSTRAINTS)
    }


def requirements(path: Path) -> Iterator[Requirement]:
    """All that a project asks for: to be built, to run, and for its extras."""
    page: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    project = page["project"]
    extras = project.get("optional-dependencies", {}).values()
    for listed in (page["build-system"]["requires"], project["dependencies"], *extras):
        yield from map(Requirement, listed)


def test_every_pin_has_a_hash_and_nothing_else_stands_there() -> None:
    plain = "".join(line for line in CONSTRAINTS.splitlines(keepends=True) if line[0] != "#")
    assert PIN.sub("", plain).strip() == ""
    assert len(pins()) == plain.count("==") > 80


def test_no_address_says_where_packages_are_taken_from() -> None:
    assert "://" not in CONSTRAINTS
    assert "index" not in re.sub(r"^#.*$", "", CONSTRAINTS, flags=re.MULTILINE)


@pytest.mark.parametrize("path", ["pyproject.toml", "studies/pyproject.toml"])
def test_what_a_project_asks_for_is_pinned_within_its_bounds(path: str) -> None:
    pinned = pins()
    for asked in requirements(ROOT / path):
        name = canonicalize_name(asked.name)
        if name != "palio":
            assert name in pinned, f"{asked}: add it to constraints.txt, and run make pins"
            assert pinned[name] in asked.specifier, f"{asked}, but {pinned[name]} is pinned"


def test_actions_are_named_by_commit() -> None:
    for page in (ROOT / ".github" / "workflows").glob("*.yml"):
        used = re.findall(r"uses: *(.+)", page.read_text(encoding="utf-8"))
        assert used
        for action in used:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[0-9.]+", action), action
