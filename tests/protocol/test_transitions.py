from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, get_args

import pytest

from palio.protocol import messages
from palio.protocol.messages import UNCOUNTED, Message
from palio.protocol.transitions import ALLOWED, RULES, Speaker, State

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "protocol.md"


def as_markdown() -> str:
    """The table as docs/concepts/protocol.md shows it; messages marked * are not counted."""
    lines = ["| message | sender | state | when |", "|---|---|---|---|"]
    for rule in RULES:
        names = (f"`{each.__name__}`{' *' * (each in UNCOUNTED)}" for each in rule.messages)
        speakers = "any" if len(rule.speakers) == len(Speaker) else _listed(rule.speakers)
        states = "any" if len(rule.states) == len(State) else _listed(rule.states)
        lines.append(f"| {', '.join(names)} | {speakers} | {states} | {rule.when} |")
    return "\n".join(lines)


def _listed(members: tuple[Enum, ...]) -> str:
    return "; ".join(str(each.value) for each in members)


def test_the_page_shows_the_table() -> None:
    assert as_markdown() in PAGE.read_text(encoding="utf-8")


def test_each_message_has_one_rule() -> None:
    listed = [kind for rule in RULES for kind in rule.messages]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(get_args(Message))


def test_in_a_greeting_nothing_is_counted() -> None:
    for speaker in Speaker:
        assert ALLOWED[speaker, State.GREETING] <= UNCOUNTED


@pytest.mark.parametrize("kind", sorted(get_args(Message), key=str))
def test_whoever_is_told_something_does_not_say_it(kind: Any) -> None:
    """But for what is about the connection, and between brokers, who are equals."""
    if kind not in UNCOUNTED:
        said = [speaker for speaker in Speaker if kind in ALLOWED[speaker, State.ESTABLISHED]]
        assert len(said) == 1


def test_greetings_are_over_once_there_is_a_welcome() -> None:
    for speaker in Speaker:
        legal = ALLOWED[speaker, State.ESTABLISHED]
        assert not legal & {messages.Hello, messages.Challenge, messages.Welcome}
