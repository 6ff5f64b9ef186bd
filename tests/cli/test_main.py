from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoints
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import pytest
import typer

from palio import __version__
from palio.cli.application import app
from palio.cli.main import EXTRAS, INTERRUPTED, missing_extra, run
from tests.cli.helpers import Palio

COMMAND: Final = [sys.executable, "-c", "from palio.cli.main import run; run()"]

HEAVY: Final = {"asyncio", "msgspec", "numba", "numpy", "pyarrow", "rich"}
"""What an answer that needs none of it must not load."""

COMMANDS: Final = (
    *("test", "explain", "convert", "match", "warm", "demo"),
    *("pub", "sub", "topology", "trace", "top", "archive", "replay", "serve"),
)

SECONDS: Final = 60


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from palio.cli.main import run\n"
        "for words in '--help', '-h', 'test --help', '--version':\n"
        "    try:\n"
        "        run(words.split())\n"
        "    except SystemExit as end:\n"
        "        assert end.code == 0, words\n"
        "print(*sys.modules, file=sys.stderr)\n"
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
        (["convert", "x"], "--dialect"),
        (["convert", "--dialect", "sql", "x"], "sql"),
        (["demo", "--seconds", "0"], "seconds"),
        (["demo", "--rate", "many"], "--rate"),
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


def test_text_that_cannot_be_encoded_is_shown_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(*arguments: str) -> bytes:
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
        with pytest.raises(SystemExit):
            run(arguments)
        return raw.getvalue()

    assert shown("explain", "a = 'é😀'").startswith("a = 'é\\U0001f600'\n".encode("latin-1"))
    assert json.loads(shown("explain", "a = 'é😀'", "--json"))["filter"] == "a = 'é😀'"


@contextmanager
def judging() -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO, BinaryIO]]:
    """A process that has given its verdict on a first event; its input and output."""
    pipe = subprocess.PIPE
    arguments = [*COMMAND, "test", "a = 1"]
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        given, told = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
        given.write(b'{"a": 1}\n')
        given.flush()
        assert told.readline() == b"match\n"  # given before the next event comes
        yield process, given, told
        assert cast(BinaryIO, process.stderr).read() == b""


def test_interrupting_is_quiet() -> None:
    with judging() as (process, _, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == INTERRUPTED


def test_a_broken_pipe_is_quiet() -> None:
    with judging() as (process, given, told):
        told.close()
        given.write(b'{"a": 1}\n' * 10)
        given.close()
        assert process.wait(SECONDS) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_every_way_of_interrupting(
    palio: Palio, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise error

    monkeypatch.setattr("palio.language.parsing.parse", interrupted)
    assert palio("explain", "a = 1") == (INTERRUPTED, "", "")


def test_a_mistake_of_our_own_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr("palio.language.parsing.parse", broken)
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

    monkeypatch.setattr("palio.language.parsing.parse", refused)
    outcome = palio("explain", "a = 1")
    assert (outcome.status, outcome.out, outcome.err) == (2, "", f"palio: {told}\n")
    outcome = palio("explain", "a = 1", "--json")
    assert (outcome.status, outcome.document["error"]["type"]) == (2, kind)


# --- without an extra: one line says what to install ---

ROOT: Final = Path(__file__).parents[2]

IMPORTED_AS: Final = {"nats_py": "nats", "paho_mqtt": "paho", "pyjwt": "jwt"}
"""Distributions whose modules have other names."""

PLAN: Final = """name = "p"

[source]
format = "rate"

[[sinks]]
of = "events"
path = "out"
"""

WITHOUT: Final = """
import json, sys
from palio.cli.main import run

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
for arguments in json.loads(sys.argv[2]):
    try:
        run(arguments)
    except SystemExit as end:
        print("status", end.code, file=sys.stderr)
"""
"""Commands one after another, in an interpreter that cannot import some packages."""


def without(extra: str, *commands: str) -> subprocess.CompletedProcess[str]:
    hidden, arguments = ",".join(EXTRAS[extra]), json.dumps([each.split() for each in commands])
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, hidden, arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )


def test_what_is_missing_is_told_in_one_line(tmp_path: Path) -> None:
    done = without(
        "server",
        f"keys create {tmp_path}/key",
        f"keys list {tmp_path}",
        f"token create ann --key {tmp_path}/key",
        "token inspect -",
        f"token revoke number --file {tmp_path}/revoked",
    )
    assert done.stdout == ""
    line = "palio: this needs the package cryptography, which is not installed; "
    line += "pip install 'palio[server]'"
    assert done.stderr.splitlines() == [line, "status 2"] * 5


def test_a_pipeline_is_checked_without_spark_and_does_not_run(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(PLAN)
    done = without("spark", f"pipeline check {file}", f"pipeline run {file}")
    assert done.stdout.startswith("1. ")
    checked, *_, told, ran = done.stderr.splitlines()
    assert (checked, ran) == ("status 0", "status 2")
    assert re.fullmatch(r"palio: .*Spark.* pip install 'palio\[spark\]'\.?", told), told
    assert "Traceback" not in done.stderr


def test_a_package_of_no_extra_is_a_fault_of_palio() -> None:
    assert missing_extra(ModuleNotFoundError("no", name="palio.nowhere")) is None
    assert missing_extra(ModuleNotFoundError("no")) is None


def test_the_extras_are_those_of_the_package() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        declared = tomllib.load(file)["project"]["optional-dependencies"]
    for extra, packages in EXTRAS.items():
        names = {re.split(r"[^\w-]", each)[0].replace("-", "_") for each in declared[extra]}
        imported = {IMPORTED_AS.get(name, name) for name in names}
        assert imported - {"palio"} == set(packages) - {"py4j"}  # which pyspark brings


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate"],
        ["simulate", "--topology", "ring:12"],
        ["study"],
        ["study", "--help"],
        ["study", "run", "siena", "--output", "runs"],
    ],
)
def test_commands_of_the_studies_are_listed_and_say_how_to_install_them(
    palio: Palio, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: EntryPoints())
    assert f"\n  {arguments[0]} " in palio("--help").out
    line = "this needs the package palio-studies, which is not installed; pip install palio-studies"
    assert palio(*arguments) == (2, "", f"palio: {line}\n")


def test_json_may_stand_before_the_command(palio: Palio) -> None:
    after = palio("config", "check", "--json").document
    assert palio("--json", "config", "check").document == after
