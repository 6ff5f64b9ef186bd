"""Tokens, keys and authorities of a network, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from palio.errors import NotAuthenticated
from palio.model.filters import TRUE
from palio.node.authority import NamedAuthority, Principal
from palio.node.effects import Moment
from palio.node.identity import NOBODY, Identity
from palio.server import tokens
from palio.simulation.doors import Doors
from tests.campaign.grants import TEAM

YEAR_S = 365 * 86_400


class Listed(NamedAuthority):
    """Certificates: everybody is listed, may do everything, and be a broker."""

    def __init__(self) -> None:
        super().__init__({})
        self._listed: dict[str, Principal] = {}

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:  # noqa: ARG002  # certificates only
        return self._listed.setdefault(
            transport_name,
            Principal(transport_name, TRUE, TRUE, may_link=True, identities=frozenset({TEAM})),
        )

    def check(self, principal: Principal, at: Moment) -> None:
        """Nobody is struck off."""


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

    def check(self, principal: Principal, at: Moment) -> None:
        if principal.name in self.struck_off:
            raise NotAuthenticated(f"{principal.name!r} was struck off at {at.now}")


class Keyring:
    """One key that signs all tokens of a network, and a key for each broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        tokens.create_key(directory / "signing")
        self.public = directory / "signing.pub"
        self.revoked = directory / "revoked"
        self.identities: dict[str, Identity] = {}
        self._key = tokens.load_private_key(directory / "signing")
        self._number = 0

    def token(self, name: str, **claims: Any) -> str:
        """A token of the network."""
        self._number += 1
        iat = claims.pop("iat", 1_000)
        exp = claims.pop("exp", 100 * YEAR_S)
        made = tokens.Claims(name, f"{name}-{self._number}", iat=iat, exp=exp, **claims)
        return tokens.sign(made, self._key)

    def free(self, name: str) -> str:
        """A token of a client that may do everything."""
        return self.token(name, may_publish="TRUE", may_hear="TRUE", identities=(TEAM,))

    def broker(
        self, name: str, may_publish: str = "TRUE", may_hear: str = "TRUE", **claims: Any
    ) -> tokens.BoundToken:
        """A new identity of a broker."""
        own = Ed25519PrivateKey.generate()
        bound = tokens.public_key_text(own.public_key())
        grants = {"may_publish": may_publish, "may_hear": may_hear}
        return tokens.BoundToken(self.token(name, broker=bound, **grants, **claims), own)

    def identity(self, name: str) -> Identity:
        """The identity of a broker, the same whenever it is asked for."""
        if name not in self.identities:
            self.identities[name] = self.broker(name)
        return self.identities[name]

    def nobody(self, *names: str) -> None:
        """These brokers have no token."""
        for name in names:
            self.identities[name] = NOBODY

    def authority(self, _broker: str = "") -> tokens.TokenAuthority:
        """What a broker of the network trusts."""
        return tokens.TokenAuthority(self.public, revoked=self.revoked)

    @property
    def doors(self) -> Doors:
        """Everybody has a token."""
        return Doors(self.authority, self.identity, self.free)


CERTIFICATES = Doors(lambda _: Listed(), certificates=True)
"""Everybody has a certificate."""
