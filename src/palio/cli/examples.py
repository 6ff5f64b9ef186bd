"""The examples that end each help; tests parse all, and run those that need nothing else."""

from __future__ import annotations

from typing import Final

import typer

MOST: Final = 3
"""Examples of one help: more are a manual."""

EXAMPLES: Final = r"""
palio demo
palio serve --http 8400
palio sub "symbol = 'IBM' AND price < 10"
palio serve --name south --listen 127.0.0.1:7402 --peer palio://127.0.0.1:7401 --data south
palio serve --config palio.toml
palio test "symbol = 'IBM' AND price < 10" '{"symbol": "IBM", "price": 9}'
palio test "price < :limit" quotes.jsonl --param limit=10
palio explain "price BETWEEN 5 AND 10 OR symbol LIKE 'I%'"
palio explain "price < :limit" '{"price": 12}' --param limit=10
palio convert '{"exact": {"type": "quote"}}' --dialect cloudevents
palio convert "symbol = 'IBM'" --dialect cesql
palio match quotes.parquet --subscriptions subscriptions.jsonl --output matches
palio match quotes.jsonl --subscriptions subscriptions.jsonl --output counts --how count
palio warm
palio demo --seconds 20 --rate 1000
palio pub '{"symbol": "IBM", "price": 9.5}'
palio pub quotes.csv --broker palio://north --durable
palio sub "price < :limit" --broker palio://north --param limit=10
palio sub "EXISTS order" --broker palio://north --name ann --durable orders --json
palio advertise "region = 'EU'" --broker palio://north --identity ann
palio advertise "EXISTS region" --identity ann --withdraw
palio topology --broker palio://north
palio trace '{"symbol": "IBM", "price": 9}'
palio trace event.jsonl --json
palio top --broker palio://north
palio top --once --json
palio archive "EXISTS symbol" --broker palio://north --output /var/lib/palio/archive
palio replay archive --broker palio://test --speed 10 --publisher january
palio replay archive "symbol = 'IBM'" --since 2026-01-31T09:00Z --until 2026-02-01 --print
palio bridge nats --name quotes --filter "symbol = 'IBM'" --to "quotes.{symbol}"
palio bridge amqp --name orders --from orders --broker palio://north
palio bridge kafka --name both --filter "EXISTS total" --to orders/{id} --from orders-in
palio config check --config palio.toml
palio config show --config palio.toml --origin
palio keys create north
palio keys list keys
palio token create ann --key signing --allow-subscribe "price < 10" --output ann.token
palio token create north --broker-key north.pub --key signing --allow-publish TRUE
palio token inspect ann.token --keys keys
palio token revoke ann.token --file revoked
palio plan make --destinations went.jsonl --groups 200 --output plan.json
palio plan make --events quotes.parquet --subscriptions interests.jsonl --output plan.json
palio plan compare --destinations went.jsonl --groups 200
palio plan show plan.json --to b1,b2 --source b1
palio plan apply plan.json --broker palio://north --timeout 60
palio plan apply --none
palio peer add palio://south --broker palio://north
palio peer list --broker palio://north
palio peer drain --broker palio://far
palio peer drain --undo --broker palio://far
palio peer remove south --broker palio://north
palio broker remove far --broker palio://north
palio subscription cancel "price > 0" --identity ann
palio subscription cancel TRUE --identity ann --delete
palio journal check /var/lib/palio/north
palio journal backup /var/lib/palio/north /mnt/backup/north
palio journal salvage /var/lib/palio/north /var/lib/palio/north-2
palio pipeline check pipeline.toml
palio pipeline run pipeline.toml
palio study run siena --scale small --output runs
palio study report runs
palio study list
palio simulate --topology ring:12
"""
"""Commands; the first of a group are those of its help."""


def examples(*words: str) -> list[str]:
    """Return the examples that begin with some words.

    >>> examples("peer", "remove")
    ['palio peer remove south --broker palio://north']
    """
    begin = ["palio", *words]
    return [line for line in EXAMPLES.strip().splitlines() if line.split()[: len(begin)] == begin]


def end_with_examples(group: typer.Typer, *words: str) -> None:
    """Let the help of a group and of all below it end with its examples."""
    group.info.epilog = _epilog(*words)
    for command in group.registered_commands:
        assert command.callback is not None
        command.epilog = _epilog(*words, command.name or command.callback.__name__)
    for below in group.registered_groups:
        assert below.typer_instance is not None
        end_with_examples(below.typer_instance, *words, str(below.name))


def _epilog(*words: str) -> str:
    found = examples(*words) or examples(*words[:-1])  # of a command that is its own group
    return "\n  ".join(("\b\nExamples:", *found[:MOST]))  # \b: lines stay as they are
