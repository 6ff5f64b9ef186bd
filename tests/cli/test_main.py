from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import chain
from typing import Any, Final

import pytest
import typer

from palio import __version__
from palio.cli.application import app
from palio.cli.main import INTERRUPTED
from tests.cli.helpers import Palio

COMMAND: Final = [sys.executable, "-c", "from palio.cli.main import run; run()"]

HEAVY: Final = {"asyncio", "lark", "msgspec", "numba", "numpy", "pyarrow", "rich"}
"""What an answer that needs none of it must not load."""

COMMANDS: Final = (
    *("test", "explain", "convert", "match", "bench", "warm", "demo"),
    *("pub", "sub", "topology", "trace", "top", "archive", "replay", "serve"),
)

SECONDS: Final = 60


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["test", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
        "from palio.cli.main import run\n"
        f"run({arguments!r})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert not HEAVY & {name.partition(".")[0] for name in done.stderr.split()}


def test_help_names_every_command(palio: Palio) -> None:
    outcome = palio("--help")
    assert outcome.status == 0
    assert outcome.err == ""
    for command in COMMANDS:
        assert f"\n  {command} " in outcome.out
    assert "..." not in outcome.out.partition("Commands:")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(palio: Palio, command: str) -> None:
    outcome = palio(command, "--help")
    assert outcome.status == 0
    assert "--json" in outcome.out


def test_version(palio: Palio) -> None:
    assert palio("--version") == (0, f"palio {__version__}\n", "")
    assert palio("--json", "--version").document == {"version": __version__}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tset", "a = 1"], "No such command 'tset'. Did you mean 'test'?"),
        (["test"], "Missing argument 'FILTER'"),
        (["test", "a = 1", "--nope"], "--nope"),
        (["convert", "x"], "--from"),
        (["convert", "--from", "sql", "x"], "sql"),
        (["demo", "--seconds", "0"], "seconds"),
        (["demo", "--rate", "many"], "--rate"),
        (["bench"], "Missing argument 'NAME'"),
        (["bench", "everything"], "everything"),
    ],
)
def test_wrong_arguments(palio: Palio, arguments: list[str], message: str) -> None:
    outcome = palio(*arguments)
    assert outcome.status == 2
    assert outcome.out == ""
    assert message in outcome.err
    assert "Traceback" not in outcome.err
    as_json = palio(*arguments, "--json")
    assert as_json.status == 2
    assert message in as_json.document["error"]["message"]
    assert as_json.document["error"]["line"] is None


def test_every_command_has_json() -> None:
    def without(command: Any, *path: str) -> list[str]:
        if hasattr(command, "commands"):
            found = (without(each, *path, name) for name, each in command.commands.items())
            return list(chain(*found))
        has_json = any("--json" in each.opts for each in command.params)
        return [] if has_json else [" ".join(path)]

    assert without(typer.main.get_command(app)) == []


def test_without_arguments_there_is_help(palio: Palio) -> None:
    outcome = palio()
    assert outcome.status == 2
    assert "Usage: palio" in outcome.out + outcome.err


BAD: Final[list[tuple[list[str], dict[str, Any]]]] = [
    (["test", "price <"], {"type": "ParseError", "line": 1, "column": 8}),
    (["explain", "a = 1 AND\n b ="], {"type": "ParseError", "line": 2, "column": 5}),
    (["test", "a = :b", "{}"], {"type": "InvalidBinding", "line": None, "column": None}),
    (["test", "a = 1", '{"a": '], {"type": "ParseError", "line": 1, "column": 7}),
    (["test", "a = 1", "no/such/file"], {"type": "InvalidInput", "line": None, "column": None}),
    (["test", "a = 1 THEN b = 1", "{}"], {"type": "InvalidFilter", "line": None, "column": None}),
]


@pytest.mark.parametrize(("arguments", "expected"), BAD)
def test_bad_input_is_told_plainly(
    palio: Palio, arguments: list[str], expected: dict[str, Any]
) -> None:
    outcome = palio(*arguments)
    assert outcome.status == 2
    assert outcome.out == ""
    assert outcome.err.startswith("palio: ")
    assert "Traceback" not in outcome.err
    as_json = palio(*arguments, "--json")
    assert as_json.status == 2
    error = as_json.document["error"]
    assert {name: error[name] for name in expected} == expected
    assert error["message"]


def test_a_filter_may_look_like_an_option_after_two_dashes(palio: Palio) -> None:
    outcome = palio("test", "--", "--json", "{}")
    assert outcome.status == 2
    assert outcome.err.startswith("palio: ")


def test_text_that_cannot_be_encoded_is_shown_all_the_same() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}

    def run(*arguments: str) -> bytes:
        return subprocess.run(
            [*COMMAND, *arguments], check=True, env=environment, stdout=subprocess.PIPE
        ).stdout

    assert run("explain", "a = 'é😀'").startswith("a = 'é\\U0001f600'\n".encode("latin-1"))
    assert json.loads(run("explain", "a = 'é😀'", "--json"))["filter"] == "a = 'é😀'"


def test_interrupting_is_quiet() -> None:
    with subprocess.Popen(
        [*COMMAND, "test", "a = 1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b'{"a": 1}\n')
        process.stdin.flush()
        assert process.stdout.readline() == b"match\n"  # given before the next event comes
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == INTERRUPTED
        assert process.stderr.read() == b""


def test_a_broken_pipe_is_quiet() -> None:
    with subprocess.Popen(
        [*COMMAND, "test", "a = 1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b'{"a": 1}\n')
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b'{"a": 1}\n' * 10)
        process.stdin.close()
        assert process.wait(SECONDS) == 1
        assert process.stderr.read() == b""


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_every_way_of_interrupting(
    palio: Palio, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr("palio.cli.explain.explain", interrupted)
    assert palio("explain", "a = 1") == (INTERRUPTED, "", "")


def test_a_mistake_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    from palio.cli.main import run

    def broken(*_: object, **__: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("palio.cli.explain.explain", broken)
    with pytest.raises(ZeroDivisionError):
        run(["explain", "a = 1"])


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (FileNotFoundError(2, "No such file", "a/b"), "InvalidInput", "'a/b': No such file"),
        (OSError(28, "No space left on device"), "PalioError", "No space left on device"),
        (TimeoutError(), "PalioError", "TimeoutError"),
    ],
)
def test_what_the_system_refuses_is_told_plainly(
    palio: Palio, monkeypatch: pytest.MonkeyPatch, error: OSError, kind: str, told: str
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("palio.cli.explain.explain", refused)
    outcome = palio("explain", "a = 1")
    assert (outcome.status, outcome.out, outcome.err) == (2, "", f"palio: {told}\n")
    outcome = palio("explain", "a = 1", "--json")
    assert (outcome.status, outcome.document["error"]["type"]) == (2, kind)
