"""Brokers and clients that are known by their names: tokens and keys that cost no cryptography."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

import msgspec

from palio.errors import NotAuthenticated
from palio.model.filters import TRUE, Filter
from palio.node.authority import NamedAuthority, Principal
from palio.node.effects import Effect, Moment, Send
from palio.node.fact_verifier import TOKEN
from palio.node.identity import fact_text, handshake_text
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Challenge, Fact, Facts, Hello, Message


class Badge:
    """A broker's identity: its token is its name, and nobody else signs as it does."""

    def __init__(self, name: str) -> None:
        self.token = name

    def sign(self, data: bytes) -> bytes:
        return blake2b(self.token.encode() + b"\0" + data, digest_size=16).digest()


def broker(name: str, allow_publish: Filter = TRUE, allow_subscribe: Filter = TRUE) -> Principal:
    return Principal(name, allow_publish, allow_subscribe, may_operate=True, key=name)


class Names(NamedAuthority):
    """An authority for which a token is a principal's name."""

    def __init__(self, *principals: Principal) -> None:
        super().__init__({})
        self.known = {each.name: each for each in principals}
        self.struck_off: set[str] = set()

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:
        if token not in self.known:
            raise NotAuthenticated(f"{token!r} is nobody ({transport_name}, {at.now})")
        return self.known[token]

    def authenticate_broker(self, token: str, at: Moment) -> Principal:
        principal = self.authenticate(token, "", at)
        principal.check_broker()
        return principal

    def vouched(self, token: str, at: Moment) -> Principal:
        return self.authenticate_broker(token, at)

    def verified(self, token: str, data: bytes, signature: bytes, at: Moment) -> Principal:
        if signature != Badge(token).sign(data):
            raise NotAuthenticated(f"this is not signed by {token!r}")
        return self.vouched(token, at)

    def check(self, principal: Principal, at: Moment) -> None:
        if principal.name in self.struck_off:
            raise NotAuthenticated(f"{principal.name!r} was struck off at {at.now}")


def signed(*facts: Fact) -> Facts:
    """Facts as their origins say them, each behind its token."""
    said = []
    for fact in facts:
        token = Fact(fact.origin, fact.version - 1, TOKEN, (fact.origin,))
        for each in (token, fact):
            signature = Badge(fact.origin).sign(fact_text(each))
            said.append(msgspec.structs.replace(each, signature=signature))
    return Facts(tuple(said))


def greet(say: Callable[[Message], list[Effect]], name: str) -> list[Effect]:
    """A broker says to a node who it is, and proves it; what is said to that."""
    hello = Hello("broker", name, PROTOCOL_VERSION, name, nonce="n")
    (challenge,) = [each.message for each in say(hello) if isinstance(each, Send)]
    assert isinstance(challenge, Challenge), challenge
    text = handshake_text(name, name, challenge.name, hello.nonce, challenge.nonce)
    return say(msgspec.structs.replace(hello, proof=Badge(name).sign(text)))
