"""The contract of the command line: its options, and the examples that end each help."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer

from palio.cli.application import app
from palio.cli.examples import EXAMPLES, MOST
from palio.cli.main import ENTRY_POINTS
from palio.server.keyfiles import create_key
from tests.cli.brokers import broker
from tests.cli.helpers import Palio

RUN: Final = (
    *("test", "explain", "convert", "config show", "config check", "keys create", "keys list"),
    *("token create", "token inspect", "token revoke", "plan make", "plan compare", "plan show"),
    *("pub", "topology", "trace", "peer list"),
)
"""Commands whose examples are run, in an order in which each finds what it needs. The others run
until they are stopped, take seconds, or need a second broker: their examples are parsed."""

URL: Final = "palio://north"
"""The broker of the examples."""


def below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command and group, with the words that name it."""
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from below(f"{words} {name}".strip(), each)


ROOTS: Final = {
    "": app,
    **{
        each.name: each.load() for each in entry_points(group=ENTRY_POINTS)
    },  # loaded when asked for
}

COMMANDS: Final = {
    words: command
    for name, root in ROOTS.items()
    for words, command in below(name, typer.main.get_command(root))
}


def examples_of(text: str) -> list[list[str]]:
    """The examples at the end of a help, split as a shell does."""
    _, found, lines = text.partition("Examples:\n")
    assert found, text
    given = [shlex.split(line) for line in lines.splitlines()]
    assert all(words[0] == "palio" for words in given), lines
    return [words[1:] for words in given]


def parsed(monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> str:
    """Parse arguments as far as the command's function, and return the words that name it."""
    reached = list[str]()
    for words, command in COMMANDS.items():
        if not hasattr(command, "commands"):
            monkeypatch.setattr(command, "callback", lambda *, _=words, **__: reached.append(_))
    root = arguments[0] if arguments[0] in ROOTS else ""
    given = arguments[1:] if root else arguments
    COMMANDS[root].main(given, prog_name="palio", standalone_mode=False)
    return reached[0]


@pytest.mark.parametrize("words", COMMANDS)
def test_every_help_ends_with_examples_of_it(
    palio: Palio, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    given = examples_of(palio(*words.split(), "--help").out)
    assert 1 <= len(given) <= MOST
    for example in given:
        assert parsed(monkeypatch, example).startswith(words), "an example of another command"


def test_every_example_is_shown_and_parsed(palio: Palio, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = [palio(*words.split(), "--help").out for words in COMMANDS]
    for line in EXAMPLES.strip().splitlines():
        assert any(f"  {line}\n" in text for text in shown), line
        assert parsed(monkeypatch, shlex.split(line)[1:])


def test_an_example_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="No such option: --nope"):
        parsed(monkeypatch, ["topology", "--nope"])
    with pytest.raises(AssertionError):
        examples_of("Usage: palio topology")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that examples name."""
    monkeypatch.chdir(tmp_path)
    quotes = [{"symbol": "IBM", "price": 9.5}, {"symbol": "ACME", "price": 12.0}]
    interests = [{"id": n, "subscriber": f"b{n}", "filter": f"price < {5 * n}"} for n in (1, 2, 3)]
    went = [{"brokers": ["b1", "b2"], "count": 10}, {"brokers": ["b2"], "count": 30}]
    files: dict[str, list[Any]] = {"quotes": quotes, "interests": interests, "went": went}
    for name, rows in (files | {"event": quotes[:1]}).items():
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "quotes.csv").write_text("symbol,price\nIBM,9.5\n")
    pq.write_table(pa.Table.from_pylist(quotes), tmp_path / "quotes.parquet")
    (tmp_path / "palio.toml").write_text('[broker]\nname = "north"\n')
    (tmp_path / "keys").mkdir()
    create_key(tmp_path / "signing")
    shutil.copy(tmp_path / "signing.pub", tmp_path / "keys")
    return tmp_path


@pytest.mark.usefixtures("home")
def test_examples_do_what_they_say(
    palio: Palio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker("north", tmp_path / "data") as address:
        monkeypatch.setattr("palio.cli.connecting.DEFAULT_BROKER", address)
        for words in RUN:
            for example in examples_of(palio(*words.split(), "--help").out):
                outcome = palio(*(address if word == URL else word for word in example))
                nobody_listens = words == "trace"
                assert outcome.status == nobody_listens, (example, outcome.err)
