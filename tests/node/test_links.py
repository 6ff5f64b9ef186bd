"""Who may say what on a connection: the table of the protocol, asked of a node."""

from __future__ import annotations

from typing import Final, get_args

import pytest

from palio.node.effects import Moment, Send
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Bye, Challenge, Hello, Message, RemoveBroker
from palio.protocol.transitions import ALLOWED, Speaker, State
from palio.routing.acyclic import Acyclic
from tests.server.test_hostile import AS_BROKER, AS_CLIENT, EVERYTHING

AT: Final = Moment(0.0, 1)

SAMPLES: Final = (*EVERYTHING, Hello("client", "x", PROTOCOL_VERSION), Challenge("b9", "n"))
KINDS: Final = {type(each): each for each in (*SAMPLES, RemoveBroker(9, "b9"))}

PLACES: Final = (
    (Speaker.CALLER, State.GREETING),
    (Speaker.NEIGHBOUR, State.GREETING),
    (Speaker.CLIENT, State.ESTABLISHED),
    (Speaker.NEIGHBOUR, State.ESTABLISHED),
)
"""Who is not greeted yet is a caller, or was called. What clients are told is theirs to judge."""


def at(speaker: Speaker, state: State) -> Node:
    """A node whose connection 1 is in a state, with somebody at its other end."""
    node = Node("b1", Acyclic("b1"), MemoryStore())
    node.start(AT)
    if speaker is Speaker.NEIGHBOUR and state is State.GREETING:
        node.dial(1, AT)
    else:
        node.accept(1, AT)
    if state is State.ESTABLISHED:
        node.receive(1, AS_CLIENT if speaker is Speaker.CLIENT else AS_BROKER, AT)
    return node


def is_out_of_place(node: Node, message: Message) -> bool:
    """Whether a message is refused for who says it when."""
    said = [each.message for each in node.receive(1, message, AT) if isinstance(each, Send)]
    reasons = [each.reason for each in said if isinstance(each, Bye)]
    phrases = ("out of place", "before any greeting", "is not for")
    return any(phrase in reason for reason in reasons for phrase in phrases)


def test_there_is_one_of_each_message() -> None:
    assert KINDS.keys() == set(get_args(Message))


@pytest.mark.parametrize(("speaker", "state"), PLACES, ids=str)
def test_a_node_goes_by_the_table(speaker: Speaker, state: State) -> None:
    legal = {kind for kind, each in KINDS.items() if not is_out_of_place(at(speaker, state), each)}
    assert legal == ALLOWED[speaker, state]
