"""The command line as 0.1.0 promises it: who calls it in scripts relies on every name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
import typer

from palio.cli.application import app
from palio.cli.main import STUDIES_COMMANDS
from tests.cli.helpers import Palio

PROMISED: Final = """
serve: --config -c --name --listen --data --routing --parent --peer --http
test: FILTER EVENT --param -p
explain: FILTER EVENT --param -p
convert: SOURCE --dialect
match: EVENTS --subscriptions --output --how --key --as-of
warm:
demo: --seconds --rate --seed
pub: SOURCE BROKER --durable --at-homes --ttl --dedup-id --identity --name
sub: FILTER BROKER --param -p --durable --since --latest-by --count --lifetime --reorder
    --by-brokers --identity --name
advertise: FILTER BROKER --param -p --identity --withdraw --name
topology: BROKER
trace: EVENT BROKER
top: BROKER --interval --once
archive: FILTER BROKER --output --param -p --name --file-mib --file-s
replay: PATH FILTER BROKER --print --param -p --since --until --skip --take --speed --publisher
    --durable
bridge: SYSTEM BROKER --name --url --filter --to --from --cloudevents --param -p --identity
config show: --config -c --origin
config check: --config -c
keys create: PATH
keys list: PATH
token create: NAME --key --allow-publish --allow-subscribe --deny-publish --deny-subscribe
    --monitor --operate --identity --broker-key --network --expires --limit --output
token inspect: TOKEN --keys
token revoke: TOKEN --file
plan make: --output --destinations --events --subscriptions --spark --network --method --groups
    --cluster-size --threshold --send-price --change --changes
plan compare: --destinations --events --subscriptions --spark --network --groups --cluster-size
    --threshold --send-price
plan show: PLAN --to --source
plan apply: PLAN BROKER --none --timeout
peer drain: BROKER --undo --timeout
peer add: URL BROKER
peer remove: NAME BROKER
peer list: BROKER
broker remove: NAME BROKER
subscription cancel: FILTER BROKER --identity --param -p --delete
journal check: DATA
journal backup: DATA NEW
journal salvage: DATA NEW
pipeline run: FILE
pipeline check: FILE
"""
"""Commands, their arguments and options; all have --json and --help, too."""

BROKER: Final = ["--broker", "-b", "--token-file", "--ca"]
"""The options that BROKER stands for."""

COMMON: Final = {"--json", "--help", "-h"}


def promised() -> dict[str, str]:
    lines = re.sub(r"\n +", " ", PROMISED.strip()).splitlines()
    return {name: rest.strip() for name, _, rest in (line.partition(":") for line in lines)}


def found(words: str, command: Any) -> Iterator[tuple[str, str]]:
    if hasattr(command, "commands"):
        for name, below in command.commands.items():
            yield from found(f"{words} {name}".strip(), below)
        return
    options = [
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if parameter.param_type_name == "option" and option not in COMMON
    ]
    arguments = [each.name.upper() for each in command.params if each.param_type_name != "option"]
    if "--broker" in options:
        begin = options.index("--broker")
        assert options[begin : begin + len(BROKER)] == BROKER
        options[begin : begin + len(BROKER)] = []
        arguments.append("BROKER")
    yield words, " ".join([*arguments, *options])


def test_every_name_is_the_promised_one() -> None:
    root = typer.main.get_command(app)
    names = {words: rest for words, rest in found("", root) if words not in STUDIES_COMMANDS}
    assert names == promised()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("palio pe", "peer"),
        ("palio convert --dialect ce", "cesql"),
        ("palio top --br", "--broker"),
        ("palio bridge na", "nats"),
    ],
)
def test_shells_complete_commands_options_and_values(
    palio: Palio, monkeypatch: pytest.MonkeyPatch, typed: str, offered: str
) -> None:
    monkeypatch.setenv("_PALIO_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    assert palio().out.split() == [offered]
