"""Validates the names in messages of peers, before their content is used.

Brokers forward the announcements of others, so an invalid name could spread through the network.
The first broker that receives it refuses it.
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

_WITH_NAMES: Final = frozenset(
    (Facts, Digest, Forward, Carry, EntriesStored, Probe, Route, FlowStatus, FlowAcks)
)


def check_names(sender: str, message: Message) -> None:
    """Refuse (`IllegalMessage`) a peer's message that contains an invalid name.

    >>> check_names("b2", Digest({"b3": 4}))
    """
    if type(message) not in _WITH_NAMES:
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
                _check(_in_durable(message))
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


# Cached, as a network has few names, which its messages repeat. A refusal raises, so it is not.
_check_cached: Final = lru_cache(maxsize=1 << 14)(check_name)


def _in_control(control: Control) -> Iterable[str]:
    """Return the brokers that a control message of routing names."""
    match control:
        case Settled(_, unreached):
            # A broker that has rejected facts is listed as "broker/origin of the facts".
            return (name for entry in unreached for name in entry.split("/", 1))
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
            continue  # `links` has the token, no names; `FactVerifier` checks its signature
        for name in fact.links:
            yield _BROKER, name
        if fact.subject.startswith(REMOVED):
            yield _BROKER, fact.subject.removeprefix(REMOVED)
        elif is_subscription(fact.subject):
            yield from _in_subjects((fact.subject,))


def _in_durable(message: Carry | EntriesStored) -> Iterator[tuple[str, str]]:
    yield _BROKER, message.origin
    yield _BROKER, message.home
    if isinstance(message, Carry):
        yield from _in_subjects(share.subject for share in message.shares)


def _in_subjects(subjects: Iterable[str]) -> Iterator[tuple[str, str]]:
    for subject in subjects:
        owner, _, name = subject.partition("/")
        yield "an owner", owner
        yield "a durable subscription", name
