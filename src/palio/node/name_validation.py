"""Validates the names in messages of peers, before their content is used.

Brokers forward what others announce of themselves, so an invalid name would spread through the
whole network. It stops at the first broker that checks names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from palio.errors import IllegalMessage, InvalidInput
from palio.node.fact_verifier import REMOVED, TOKEN, is_subscription
from palio.protocol.messages import (
    Carry,
    Digest,
    EntriesStored,
    Fact,
    Facts,
    FlowAcks,
    FlowStatus,
    Forward,
    Message,
    Probe,
    Route,
)
from palio.protocol.names import check_name
from palio.routing.messages import Control, Flood, LinkState, LinkTable, Reached, Settled, TreePlan

_BROKER: Final = "a broker"

_NAMING: Final = frozenset(
    (Facts, Digest, Forward, Carry, EntriesStored, Probe, Route, FlowStatus, FlowAcks)
)


def check_names(sender: str, message: Message) -> None:
    """Refuse (`IllegalMessage`) a peer's message that contains an invalid name.

    >>> check_names("b2", Digest({"b3": 4}))
    """
    if type(message) not in _NAMING:
        return
    try:
        match message:
            case Facts(facts):
                _check(_in_facts(facts))
            case Digest(versions):
                _check((_BROKER, name) for name in versions)
            case Forward():
                _check((_BROKER, name) for name in _in_forward(message))
            case Carry() | EntriesStored():
                _check(_in_custody(message))
            case Probe():
                _check((_BROKER, name) for name in message.path)
            case FlowStatus() | FlowAcks():
                _check((_BROKER, name) for name in (message.sender, message.receiver))
            case Route(control):
                _check((_BROKER, name) for name in _in_control(control))
    except InvalidInput as error:
        raise IllegalMessage(sender, str(error)) from None


def _in_forward(message: Forward) -> list[str]:
    path = () if message.detour is None else message.detour.path
    return [*path, message.source] if message.source else [*path]


def _check(named: Iterable[tuple[str, str]]) -> None:
    for kind, name in named:
        _check_cached(name, kind)


# A network has few names, and repeats them. Refusals raise, and are not cached.
_check_cached: Final = lru_cache(maxsize=1 << 14)(check_name)


def _in_control(control: Control) -> Iterable[str]:
    """Return the brokers that a control message of routing names."""
    match control:
        case Settled(_, unreached):
            return (name for path in unreached for name in path.split("/", 1))
        case LinkState(origin, _, neighbours):
            return (origin, *neighbours)
        case LinkTable(states):
            return (name for state in states for name in (state.origin, *state.neighbours))
        case TreePlan(origin, _, links):
            return (origin, *(end for link in links for end in link))
        case Flood(origin) | Reached(origin):
            return (origin,)
    return ()


def _in_facts(facts: Iterable[Fact]) -> Iterator[tuple[str, str]]:
    for fact in facts:
        yield _BROKER, fact.origin
        if fact.subject == TOKEN:
            continue  # its links are the token, which verifies itself
        for name in fact.links:
            yield _BROKER, name
        if fact.subject.startswith(REMOVED):
            yield _BROKER, fact.subject.removeprefix(REMOVED)
        elif is_subscription(fact.subject):
            yield from _in_subjects((fact.subject,))


def _in_custody(message: Carry | EntriesStored) -> Iterator[tuple[str, str]]:
    yield _BROKER, message.origin
    yield _BROKER, message.home
    if isinstance(message, Carry):
        yield from _in_subjects(share.subject for share in message.shares)


def _in_subjects(subjects: Iterable[str]) -> Iterator[tuple[str, str]]:
    for subject in subjects:
        owner, _, name = subject.partition("/")
        yield "an owner", owner
        yield "a durable subscription", name
