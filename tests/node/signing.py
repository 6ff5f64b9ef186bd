"""Tokens, keys and authorities of a network, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from palio import files
from palio.node.identity import NOBODY, Identity
from palio.server import keyfiles, tokens
from palio.server.settings import Auth
from palio.simulation.computers import AccessPolicy
from tests.campaign.grants import TEAM

YEAR_S = 365 * 86_400


class Keyring:
    """One key that signs all tokens of a network, and a key for each broker."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        keyfiles.create_key(directory / "signing")
        self.public = directory / "signing.pub"
        self.revoked = directory / "revoked"
        self.revoked.touch()
        self.identities: dict[str, Identity] = {}
        self._key = keyfiles.load_private_key(directory / "signing")
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
        return self.token(
            name, allow_publish="TRUE", allow_subscribe="TRUE", operate=True, identities=(TEAM,)
        )

    def broker(
        self, name: str, allow_publish: str = "TRUE", allow_subscribe: str = "TRUE", **claims: Any
    ) -> tokens.BoundToken:
        """A new identity of a broker."""
        own = Ed25519PrivateKey.generate()
        bound = keyfiles.public_key_text(own.public_key())
        grants = {"allow_publish": allow_publish, "allow_subscribe": allow_subscribe}
        return tokens.BoundToken(self.token(name, broker=bound, **grants, **claims), own)

    def identity(self, name: str) -> Identity:
        """The identity of a broker, the same whenever it is asked for."""
        if name not in self.identities:
            self.identities[name] = self.broker(name, operate=True)
        return self.identities[name]

    def equip(self, name: str, **claims: Any) -> Auth:
        """The settings of a broker that has a key, as files."""
        own = self.directory / name
        if not own.exists():
            keyfiles.create_key(own)
            public = keyfiles.load_private_key(own).public_key()
            bound = keyfiles.public_key_text(public)
            granted = {"allow_publish": "TRUE", "allow_subscribe": "TRUE"} | claims
            with files.create(own.with_suffix(".token")) as file:
                file.write(self.token(name, broker=bound, **granted).encode())
        return Auth(
            keys=str(self.public),
            revoked=str(self.revoked),
            token_file=str(own.with_suffix(".token")),
            broker_key=str(own),
        )

    def nobody(self, *names: str) -> None:
        """These brokers have no token."""
        for name in names:
            self.identities[name] = NOBODY

    def authority(self, _broker: str = "") -> tokens.TokenAuthority:
        """What a broker of the network trusts."""
        return tokens.TokenAuthority(self.public, revoked=self.revoked)

    @property
    def access(self) -> AccessPolicy:
        """Everybody has a token."""
        return AccessPolicy(self.authority, self.identity, self.free)
