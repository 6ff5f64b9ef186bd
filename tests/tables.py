"""The tables of docs/reference, so that tests check the very rows that people read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

REFERENCE: Final = Path(__file__).parents[1] / "docs" / "reference"


def table(heading: str, page: str = "model.md") -> list[dict[str, str]]:
    """The rows of the first table under a heading, by the names of its columns."""
    lines = iter((REFERENCE / page).read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.lstrip("#").strip() == heading and line.startswith("#"):
            break
    else:
        raise LookupError(f"{page} has no heading {heading!r}")
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif rows or line.startswith("#"):
            break
    names, _, *body = rows
    return [dict(zip(names, row, strict=True)) for row in body]


def code(cell: str) -> str:
    """What stands between the backticks of a cell."""
    return cell.strip().strip("`").strip()
