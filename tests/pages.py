"""The pages of the documentation, and their snippets as programs that a type checker can read.

python -m tests.pages FOLDER     write the snippets of each page as a program into a folder
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE: Final = re.compile(r"^(?P<indent>[ >]*)(?P<mark>`{3,}|~{3,})[ ]*(?P<info>[^`\n]*)$")

IMPORTS: Final = (ast.Import, ast.ImportFrom)


class Block(NamedTuple):
    """One fenced block of a page; `line` is the number of its first line of code."""

    language: str
    info: tuple[str, ...]
    code: str
    line: int


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, from the top; an open fence at the end is an error."""
    lines = iter(enumerate(page.splitlines(), start=1))
    for number, line in lines:
        fence = FENCE.match(line)
        if fence is None:
            continue
        indent, mark = fence["indent"], fence["mark"]
        closing = re.compile(rf"^[ >]*{re.escape(mark[0])}{{{len(mark)},}}\s*$")
        body: list[str] = []
        for _, inner in lines:
            if closing.match(inner):
                break
            body.append(
                inner.removeprefix(indent) if inner.startswith(indent) else inner.lstrip(" >")
            )
        else:
            raise AssertionError(f"line {number}: the fence {line.strip()!r} is never closed")
        language, *info = fence["info"].split() or [""]
        code = textwrap.dedent("\n".join(body)) + "\n"
        yield Block(language.lower(), tuple(info), code, number + 1)


def program_of(path: Path) -> str:
    """The snippets of a page as a program: those of README.md each as the body of a function of its
    own, behind what the blocks above it import; on other pages one goes on where another ended, and
    what is only shown is left out.
    """
    is_readme = path.name == "README.md"
    imports: list[str] = []
    bodies: list[str] = []
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.language != "python" or ("no-run" in block.info and not is_readme):
            continue
        tree = ast.parse(block.code, type_comments=False)
        own = [ast.unparse(each) for each in tree.body if isinstance(each, IMPORTS)]
        imports += [each for each in own if each not in imports]
        body = [each for each in block.code.splitlines() if each.strip() not in own]
        head = f"async def line_{block.line}() -> None:\n" if is_readme or not bodies else ""
        bodies.append(head + textwrap.indent("\n".join([*body, "pass"]), "    "))
    return "\n".join([*imports, *bodies])


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("page_*.py"):
        path.unlink()
    for number, path in enumerate(PAGES):
        name = f"page_{number}_{path.stem.replace('-', '_')}.py"
        (folder / name).write_text(program_of(path), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
