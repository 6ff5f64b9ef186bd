"""Each line of the threat model names the tests that show it, and these exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parent / "docs" / "security.md").read_text(encoding="utf-8")


def named() -> set[tuple[str, str]]:
    """Test files, and tests in them; a further test of one file is named by `::` alone."""
    found = set()
    for line in PAGE.splitlines():
        file = ""
        for path, test in re.findall(r"([\w/]+\.py)?(?:::(\w+))?", line):
            file = path or file
            if file and (path or test):
                found.add((file, test))
    return found


def tests_of(file: str) -> set[str]:
    tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
    functions = ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in ast.walk(tree) if isinstance(node, functions)}


def test_every_test_that_the_page_names_is_there() -> None:
    missing = [
        f"{file}::{test}"
        for file, test in sorted(named())
        if not (HERE / file).exists() or (test and test not in tests_of(file))
    ]
    assert missing == []


def test_every_line_of_a_table_names_a_test() -> None:
    _, _, tables = PAGE.partition("\n## Trust\n")
    lines = [line for line in tables.splitlines() if line.startswith("| ")]
    bare = [line for line in lines if ".py" not in line and line != "| attack | result | test |"]
    assert len(lines) > 50
    assert bare == []


def test_no_line_stands_twice_in_a_table() -> None:
    for section in PAGE.split("\n## "):
        lines = [line for line in section.splitlines() if line.startswith("| ")]
        assert sorted(set(lines)) == sorted(lines)
