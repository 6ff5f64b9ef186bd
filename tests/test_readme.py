"""The documentation runs: every snippet of README.md and docs/ is executed, in order.

Write a page as a reader would type it in:

    ```python           runs; the blocks of a page share one namespace and one event loop, and may
                        `await` at the top level; a block of `>>>` lines runs as a doctest
    ```python no-run    is shown only
    ```console          lines that start with `$ palio`, or pipe into it, run; the lines under one
                        are its expected output (`...` stands for anything); without any, it must
                        merely succeed; other commands are shown only
    ```json quote.json  any fence with a file name is written to that file, for the blocks below

A page runs in an empty directory of its own.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final, NamedTuple

import pytest

from tests.pages import PAGES, ROOT, Block, blocks

SNIPPET_SECONDS_MAX: Final = 120.0
"""A snippet that waits for an event that never comes fails instead of hanging the run."""

COMMAND: Final = re.compile(r"^(.*\|\s*)?palio(\s|$)", re.DOTALL)
FILE_NAME: Final = re.compile(r"^[\w-]+(\.[\w-]+)+$")


class Command(NamedTuple):
    """One `$` line of a console block and the output shown under it."""

    text: str
    expected: str
    line: int


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block; a trailing backslash continues one."""
    lines = block.code.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        last = start
        while lines[last].endswith("\\") and last + 1 < end:
            last += 1
        text = "\n".join(lines[start : last + 1]).removeprefix("$ ")
        expected = "\n".join(lines[last + 1 : end]).strip("\n")
        yield Command(text, expected, block.line + start)


class Page:
    """Runs the blocks of one page. `directory` is where its files go, and its home directory."""

    def __init__(self, path: Path, directory: Path) -> None:
        self._path = path
        self._directory = directory
        # A real module, because dataclasses and type hints look theirs up by name.
        self._module = ModuleType("snippets_of_" + re.sub(r"\W", "_", path.stem))
        self._runner = asyncio.Runner()

    def run(self) -> int:
        """Run everything there is to run and say how many blocks that was."""
        ran = 0
        sys.modules[self._module.__name__] = self._module
        try:
            with self._runner:
                for block in blocks(self._path.read_text(encoding="utf-8")):
                    ran += self._run_block(block)
        finally:
            del sys.modules[self._module.__name__]
        return ran

    def _run_block(self, block: Block) -> bool:
        if "no-run" in block.info:
            return False
        for name in filter(FILE_NAME.match, block.info):
            (self._directory / name).write_text(block.code, encoding="utf-8")
        if block.language in ("python", "py", "pycon"):
            self._run_python(block)
        elif block.language in ("console", "shell-session"):
            return sum(map(self._run_command, commands(block))) > 0
        else:
            return False
        return True

    def _run_python(self, block: Block) -> None:
        if block.code.lstrip().startswith(">>>"):
            self._run_doctest(block)
            return
        # Blank lines in front give tracebacks the page's own line numbers.
        code = compile(
            "\n" * (block.line - 1) + block.code,
            str(self._path),
            "exec",
            flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
            dont_inherit=True,
        )
        if code.co_flags & inspect.CO_COROUTINE:
            self._runner.run(self._await(code, block.line))
        else:
            exec(code, self._module.__dict__)

    async def _await(self, code: CodeType, line: int) -> None:
        try:
            await asyncio.wait_for(eval(code, self._module.__dict__), SNIPPET_SECONDS_MAX)
        except TimeoutError as error:
            where = f"{self._path.name}:{line}"
            raise AssertionError(f"{where}: still running after {SNIPPET_SECONDS_MAX} s") from error

    def _run_doctest(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(
            block.code, self._module.__dict__, self._path.name, str(self._path), block.line - 1
        )
        report: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
        runner.run(test, out=report.append, clear_globs=False)
        self._module.__dict__.update(test.globs)
        assert not runner.failures, "".join(report)

    def _run_command(self, command: Command) -> bool:
        if not COMMAND.match(command.text):
            return False
        done = subprocess.run(
            ["/bin/sh", "-c", command.text],
            cwd=self._directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=SNIPPET_SECONDS_MAX,
            check=False,
        )
        where = f"{self._path.name}:{command.line}: $ {command.text}"
        got = trimmed(done.stdout)
        if not command.expected:
            assert done.returncode == 0, f"{where}\nended with {done.returncode}:\n{got}"
        else:
            same = doctest.OutputChecker().check_output(
                trimmed(command.expected), got, doctest.ELLIPSIS
            )
            if not same:
                raise AssertionError(
                    f"{where}\nexpected:\n{trimmed(command.expected)}\ngot:\n{got}"
                )
        return True

    def _environment(self) -> dict[str, str]:
        """Make `palio` run in this very interpreter, installed or not, and print plain text."""
        bin_directory = self._directory / ".bin"
        if not bin_directory.exists():
            bin_directory.mkdir()
            script = bin_directory / "palio"
            script.write_text(
                f"#!/bin/sh\n'''exec' '{sys.executable}' \"$0\" \"$@\"\n'''\n"
                "from palio.cli.main import run\n\nrun()\n",
                encoding="utf-8",
            )
            script.chmod(0o755)
        path = os.pathsep.join([str(bin_directory), os.environ.get("PATH", os.defpath)])
        plain = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONIOENCODING": "utf-8"}
        return {**os.environ, **plain, "PATH": path}


def trimmed(output: str) -> str:
    """Output without what nobody sees: blanks at the ends of lines, blank lines at the ends."""
    return "\n".join(line.rstrip() for line in output.splitlines()).strip("\n") + "\n"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = Page(path, tmp_path).run()
    assert ran or path.name != "README.md", "README.md shows nothing that runs"


def test_the_first_program_of_the_readme_runs_as_it_is_pasted(tmp_path: Path) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    program = next(block for block in blocks(page) if "hello.py" in block.info)
    (tmp_path / "hello.py").write_text(program.code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "hello.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "9.5" in done.stdout
    assert done.stderr == ""


def test_what_the_readme_installs_and_runs_exists() -> None:
    """Extras are in pyproject.toml, commands in `palio --help`, targets in the Makefile."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    shell = "\n".join(block.code for block in blocks(page) if block.language == "sh")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for named in re.findall(r"'(?:palio|\.)\[([\w,]+)\]'", page):
        assert set(named.split(",")) <= extras["optional-dependencies"].keys()
    known = subprocess.run(
        [sys.executable, "-m", "palio", "--help"], capture_output=True, text=True, check=True
    ).stdout
    ran = set(re.findall(r"^(?:.*\| )?palio (\w+)", shell, re.MULTILINE))
    assert {"demo", "serve", "sub", "pub"} <= ran
    assert all(re.search(rf"\b{command}\b", known) for command in ran)
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make (\w+)", page)) <= targets


# --- the runner itself ---

Run = Callable[[str], int]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a page given as text, at home in `tmp_path`."""
    monkeypatch.chdir(tmp_path)

    def run_text(text: str) -> int:
        path = tmp_path / "page.md"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return Page(path, tmp_path).run()

    return run_text


def test_blocks_share_a_namespace_and_a_loop(run: Run, tmp_path: Path) -> None:
    ran = run(
        """
        ```python
        import asyncio, pathlib
        queue = asyncio.Queue()
        ```
        Text between.
        ```python
        await queue.put(1)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(1):
            got = await queue.get()
        ```
        ```python
        assert await asyncio.sleep(0, got) == 1
        assert asyncio.get_running_loop() is loop
        pathlib.Path("ran.txt").touch()
        ```
        """
    )
    assert ran == 3
    assert (tmp_path / "ran.txt").exists()


def test_a_block_may_bring_its_own_loop(run: Run) -> None:
    page = """
        ```python
        import asyncio
        async def main():
            return 1
        assert asyncio.run(main()) == 1
        ```
        ```python
        assert await main() == 1
        ```
        """
    assert run(page) == 2


@pytest.mark.parametrize(
    "page",
    [
        "```python no-run\nraise SystemExit\n```",
        "```\nnot code\n```",
        "```json\n{}\n```",
        "```toml\n[palio]\n```",
        "```console\n$ make demo\nwhatever\n$ cat palio\n```",
        "````markdown\n```python\nraise SystemExit\n```\n````",
        "no fence, `one` line",
    ],
)
def test_what_is_only_shown_is_not_run(run: Run, page: str) -> None:
    assert run(page) == 0


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("```python", "```"),
        ("```py", "```"),
        ("```Python", "````"),
        ("``` python  title", "```  "),
        ("~~~python", "~~~"),
        ("  ```python", "  ```"),
    ],
)
def test_every_spelling_of_a_python_fence_runs(run: Run, opening: str, closing: str) -> None:
    with pytest.raises(ZeroDivisionError):
        run(f"text\n{opening}\n1 / 0\n{closing}\n")


def test_a_quoted_block_runs(run: Run) -> None:
    with pytest.raises(ZeroDivisionError):
        run("> ```python\n> if True:\n>\n>     1 / 0\n> ```\n")


def test_an_indented_block_runs_and_a_failure_names_its_line(run: Run) -> None:
    page = "# Title\n\n- item\n\n  ```python\n  if True:\n      1 / 0\n  ```\n"
    with pytest.raises(ZeroDivisionError) as failure:
        run(page)
    assert failure.traceback[-1].lineno + 1 == 7
    assert str(failure.traceback[-1].path).endswith("page.md")


def test_classes_of_a_page_know_their_module(run: Run) -> None:
    assert run(
        """
        ```python
        from __future__ import annotations
        import dataclasses, typing
        @dataclasses.dataclass
        class Quote:
            price: float
        assert typing.get_type_hints(Quote) == {"price": float}
        ```
        """
    )
    assert not [name for name in sys.modules if name.startswith("snippets_of_")]


def test_an_open_fence_is_an_error(run: Run) -> None:
    with pytest.raises(AssertionError, match="line 2: the fence '```python' is never closed"):
        run("text\n```python\n1 / 1\n")


def test_a_snippet_that_never_ends_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SNIPPET_SECONDS_MAX", 0.01)
    with pytest.raises(AssertionError, match=r"page\.md:2: still running"):
        run("```python\nimport asyncio\nawait asyncio.Event().wait()\n```\n")


def test_doctest_lines_are_compared(run: Run) -> None:
    assert run("```python\nx = 20\n```\n```python\n>>> x + 1\n21\n>>> y = x\n```\n") == 2
    assert run("```python\n>>> z = 5\n```\n```python\nassert z == 5\n```\n") == 2
    with pytest.raises(AssertionError, match="Expected"):
        run("```pycon\n>>> 1 + 1\n3\n```\n")


def test_a_named_fence_becomes_a_file(run: Run, tmp_path: Path) -> None:
    run('```json quote.json\n{"price": 9}\n```\n')
    assert (tmp_path / "quote.json").read_text(encoding="utf-8") == '{"price": 9}\n'


def test_commands_are_split_from_their_output() -> None:
    code = "$ palio test \\\n    'a = 1' -\nmatch\n\nend\n$ make demo\n$ palio --help\n"
    assert list(commands(Block("console", (), code, 10))) == [
        Command("palio test \\\n    'a = 1' -", "match\n\nend", 10),
        Command("make demo", "", 15),
        Command("palio --help", "", 16),
    ]


class TestConsole:
    """With a stand-in for the command, so that these check the runner only."""

    @pytest.fixture(autouse=True)
    def stand_in(self, tmp_path: Path) -> None:
        script = tmp_path / ".bin" / "palio"
        script.parent.mkdir()
        script.write_text('#!/bin/sh\necho "$# arguments: $*  "\ncat\nexit 1\n', encoding="utf-8")
        script.chmod(0o755)

    def test_output_is_compared(self, run: Run) -> None:
        assert run("```console\n$ palio test 'a = 1'\n2 arguments: test a = 1\n```\n") == 1
        assert run("```console\n$ palio test 'a = 1'\n2 ... = 1\n```\n") == 1
        with pytest.raises(AssertionError, match=r"page\.md:2: \$ palio x\nexpected:\nno\n"):
            run("```console\n$ palio x\nno\n```\n")

    def test_a_pipe_into_it_runs(self, run: Run) -> None:
        assert run("```console\n$ echo '{}' | palio test -\n2 arguments: test -\n{}\n```\n") == 1

    def test_without_output_it_must_succeed(self, run: Run) -> None:
        with pytest.raises(AssertionError, match="ended with 1"):
            run("```console\n$ palio demo\n```\n")
