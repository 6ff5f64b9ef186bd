"""Tokens: who someone is and what is granted to them, signed, expiring, and verified offline.

A token is a JSON Web Token with one algorithm, Ed25519 (`alg: EdDSA`), so that ordinary tools read
it. PyJWT reads and signs the format; the claims are Palio's own, and strict. The header names the
key (`kid`), so that several keys may be in use while one replaces another. docs/howto/authority.md
has the claims and an example.

A token with the claim `broker` is bound to a key of its own: `BoundToken` is that token and its
key, and proves by signatures that it has both. Such a token may be seen by everybody.

A broker needs public keys only. `TokenAuthority` reads them from a directory (`*.pub`), and the
numbers of revoked tokens from a file, again whenever these change. What cannot be read stops a
start; while a broker runs, keys and revocations stay as they were, and the log has an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt import PyJWS, PyJWTError

from palio import files
from palio.bounded import Bounded
from palio.errors import InvalidInput, NotAuthenticated, PalioError
from palio.language.documents import read_document
from palio.model.limits import check_limit
from palio.node.authority import ANYONE, NamedAuthority, Principal
from palio.node.effects import Moment
from palio.protocol.names import check_name
from palio.server.keyfiles import (
    key_files,
    key_id,
    load_public_keys,
    public_key_of,
    public_key_text,
)
from palio.server.settings import Grant

logger: Final = logging.getLogger("palio.server")

ALGORITHM: Final = "EdDSA"
"""The one algorithm of tokens: a header that names another is refused before any key is used."""

MAX_TOKEN_CHARS: Final = 8_192
"""A token: with its name it fits into a greeting, and its grants into a header of HTTP."""

MAX_JTI_CHARS: Final = 200
"""A token's number: what signers draw at random has 16 to 36."""

MAX_BOUND: Final = 10_000
"""Tokens of brokers that are remembered as verified: those of a large network."""

MAX_TIME_S: Final = 253_402_300_799
"""The last second of the year 9999, the last that calendars show: no token is good beyond."""

MAX_SKEW_S: Final = 300.0
"""Seconds that the clock of a token's signer may be ahead of a broker's."""

LOOK_AGAIN_S: Final = 1.0
"""The files of keys and revocations are looked at no more often than this."""

SHOW_TOKEN: Final = (
    "show a token: $PALIO_TOKEN or --token-file for commands, token=... in Python, "
    "`Authorization: Bearer ...` over HTTP"
)
"""Advice for clients that show no token."""

_NO_TOKEN: Final = "what was shown is no token of Palio's"

_JWS: Final = PyJWS(algorithms=[ALGORITHM])

_NUMBER: Final = re.compile(rf"[!-~]{{1,{MAX_JTI_CHARS}}}")
"""What a line of a file of revocations holds."""


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first part of a token. One that asks for more, as by `crit`, is not understood."""

    alg: str
    kid: str
    typ: str = "JWT"


class Claims(Grant, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The second part: times are seconds since 1970, filters are texts, no filter is no grant."""

    sub: str
    jti: str
    iat: int
    exp: int
    aud: str = ""
    """The network that it is for; without it, one that has no name."""
    broker: str = ""
    """The public key, 32 bytes in base64url, that the broker of this name must have."""

    def principal(self) -> Principal:
        """Build the principal. Filters that nobody can read are the signer's fault."""
        if self.sub == ANYONE:
            raise InvalidInput(f"{ANYONE!r} is the name of those who show no token; take another")
        _check_number(self.jti)
        if self.aud:
            check_name(self.aud, "a network")
        if self.broker:
            public_key_of(self.broker)
        if not 0 <= self.iat < self.exp <= MAX_TIME_S:
            raise InvalidInput(
                f"a token is good from iat {self.iat} until exp {self.exp}, in seconds since 1970: "
                f"exp is above iat, and no later than {MAX_TIME_S} (the year 9999, MAX_TIME_S)"
            )
        return self.granted_to(
            self.sub, key=self.broker, expires_us=self.exp * 1_000_000, token=self.jti
        )


def _check_number(jti: str) -> None:
    """Refuse what could not be revoked."""
    if not _NUMBER.fullmatch(jti):
        raise InvalidInput(
            f"{jti!r:.40} is no token's number (jti): 1 to {MAX_JTI_CHARS} printing characters of "
            "ASCII without blanks (MAX_JTI_CHARS), so that a line of auth.revoked holds it"
        )


# --- tokens ---


def sign(claims: Claims, key: Ed25519PrivateKey) -> str:
    """A token. Its filters are read first: nobody gets one that no broker could read.

    >>> key = Ed25519PrivateKey.generate()
    >>> token = sign(Claims("alice", "1", iat=0, exp=60, allow_subscribe="price < 5"), key)
    >>> verify(token, {key_id(key.public_key()): key.public_key()}).sub
    'alice'
    """
    claims.principal()
    kid = key_id(key.public_key())
    token = _JWS.encode(msgspec.json.encode(claims), key, ALGORITHM, {"kid": kid})
    check_limit("a token", "MAX_TOKEN_CHARS", MAX_TOKEN_CHARS, len(token))
    return token


def verify(token: str, keys: Mapping[str, Ed25519PublicKey]) -> Claims:
    """The claims of a token that one of these keys has signed, read once its signature is good;
    its times are not looked at.
    """
    header = _header(token)
    if header.alg != ALGORITHM:
        raise NotAuthenticated(
            f"a token signed by {header.alg!r:.40}; only {ALGORITHM} is accepted"
        )
    key = keys.get(header.kid)
    if key is None:
        raise NotAuthenticated(f"a token signed with the key {header.kid!r:.40}, which is unknown")
    try:
        return _claims(_JWS.decode(token, key, algorithms=[ALGORITHM]))
    except PyJWTError:
        raise NotAuthenticated("a token whose signature is not that of its key") from None


def inspect(token: str) -> tuple[Header, Claims]:
    """Read header and claims without their signature. For people; a broker calls `verify`."""
    return _header(token), _claims(_JWS.decode(token, options={"verify_signature": False}))


def _header(token: str) -> Header:
    if len(token) > MAX_TOKEN_CHARS:
        raise NotAuthenticated(
            f"a token of {len(token)} characters; {MAX_TOKEN_CHARS} are the most (MAX_TOKEN_CHARS)"
        )
    try:
        return msgspec.convert(_JWS.get_unverified_header(token), Header)
    except (PyJWTError, msgspec.MsgspecError, ValueError):  # parts, base64, fields, UTF-8
        raise NotAuthenticated(_NO_TOKEN) from None


def _claims(payload: bytes) -> Claims:
    try:
        return msgspec.convert(read_document(payload.decode()), Claims)
    except (PalioError, msgspec.MsgspecError, ValueError):  # JSON, keys that occur twice, UTF-8
        raise NotAuthenticated(_NO_TOKEN) from None


class BoundToken:
    """A broker's `Identity`: a token and the private key that it is bound to.

    >>> key, own = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    >>> bound = public_key_text(own.public_key())
    >>> token = sign(Claims("north", "1", iat=0, exp=60, broker=bound), key)
    >>> len(BoundToken(token, own).sign(b"what is to be proven"))
    64
    """

    def __init__(self, token: str, key: Ed25519PrivateKey) -> None:
        _, claims = inspect(token)
        if not claims.broker:
            raise InvalidInput(
                f"the token of {claims.sub!r} is not bound to a broker's key; "
                f"make one with palio token create {claims.sub} --broker-key {claims.sub}.pub"
            )
        if claims.broker != public_key_text(key.public_key()):
            raise InvalidInput(
                f"the token of {claims.sub!r} is bound to another key than this one; "
                "give the key whose .pub was named by --broker-key"
            )
        self.token = token
        self.name = claims.sub
        self._key = key

    def sign(self, data: bytes) -> bytes:
        """Sign some bytes with the private key (`palio.node.identity.Identity`)."""
        return self._key.sign(data)


# --- authority ---


def revoke(path: Path, token_id: str) -> None:
    """Add a token's number (`jti`) to a file of revoked ones."""
    _check_number(token_id)
    is_cut = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    files.append(path, ("\n" if is_cut else "") + f"{token_id}\n")


def load_revoked(path: Path) -> frozenset[str]:
    """Read the ids of revoked tokens."""
    lines = path.read_text("utf-8", "replace").split("\n")
    for place, line in enumerate(lines, 1):
        if line and not _NUMBER.fullmatch(line):
            raise InvalidInput(f"{path}:{place}: {line!r:.40} is no token's number")
    return frozenset(filter(None, lines))


_Value = TypeVar("_Value")


class _Loaded(Generic[_Value]):
    """The content of some files as they could last be read."""

    def __init__(self, load: Callable[[], _Value], paths: Callable[[], list[Path]]) -> None:
        self._load = load
        self._paths = paths
        self._stamps = [_stamp(path) for path in paths()]
        self.value = load()
        self._problem = ""

    def look(self) -> bool:
        """Read them, if they have changed; whether that gave something else."""
        stamps = [_stamp(path) for path in self._paths()]
        if stamps == self._stamps:
            return False
        try:
            self.value = self._load()
        except (PalioError, OSError) as error:  # half a key was written: it is read next time
            if str(error) != self._problem:
                details = {"reason": str(error), "effect": "the last good version stays in force"}
                logger.error("credentials_reload_failed", extra={"details": details})
            self._problem = str(error)
            return False
        self._stamps, self._problem = stamps, ""
        return True


class TokenAuthority:
    """Knows principals by their tokens, and clients by their certificates, too.

    A connection that shows a token is known by it alone; one that shows none, by the name in its
    client certificate, if that is listed.
    """

    def __init__(
        self,
        keys: Path,
        *,
        network: str = "",
        revoked: Path | None = None,
        named: Mapping[str, Principal] | None = None,
    ) -> None:
        self._network = network
        self._listed = frozenset(named or {})
        self._named = NamedAuthority(named or {})
        self._keys = _Loaded(partial(load_public_keys, keys), partial(key_files, keys))
        self._listing = _Loaded[frozenset[str]](frozenset, list)
        if revoked is not None:
            self._listing = _Loaded(partial(load_revoked, revoked), lambda: [revoked])
        self._revoked = self._listing.value
        """Everything listed since this broker runs: a file that is being rewritten may be empty for
        a moment."""
        self._looked_at = float("-inf")
        self._bound = Bounded[str, Principal](MAX_BOUND)
        """Tokens of brokers that were verified with the keys of now."""

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:
        """Authenticate a client (`Authority`)."""
        principal = self._shown(token, transport_name, at)
        principal.check_client()
        return principal

    def authenticate_broker(self, token: str, at: Moment) -> Principal:
        """Authenticate a broker (`Authority`)."""
        principal = self._shown(token, "", at)
        principal.check_broker()
        return principal

    def vouched(self, token: str, at: Moment) -> Principal:
        """Verify a broker's token whose owner is not here (`Authority`)."""
        self._look(at.now)
        principal = self._bound.get(token)
        if principal is None:
            principal = self._read(token)
            principal.check_broker()
            self._bound[token] = principal
        self._check_revoked(principal)
        return principal

    def verified(self, token: str, data: bytes, signature: bytes, at: Moment) -> Principal:
        """Verify a broker's token and a signature by its key (`Authority`)."""
        principal = self.vouched(token, at)
        try:
            public_key_of(principal.key).verify(signature, data)
        except InvalidSignature:
            raise NotAuthenticated(
                f"a signature that is not by the key of the broker {principal.name!r}"
            ) from None
        return principal

    def _shown(self, token: str, transport_name: str, at: Moment) -> Principal:
        if not token:
            return self._without_token(transport_name, at)
        self._look(at.now)
        principal = self._read(token, at)
        self.check(principal, at)
        return principal

    def _read(self, token: str, at: Moment | None = None) -> Principal:
        """Read the principal of a token; with a moment, if it may have been made by then."""
        try:
            claims = verify(token, self._keys.value)
            principal = claims.principal()
        except NotAuthenticated:
            raise
        except PalioError as error:
            raise NotAuthenticated(f"a token with a grant that cannot be read: {error}") from None
        if claims.aud != self._network:
            raise NotAuthenticated(
                f"a token whose aud is {claims.aud!r}, where auth.network is {self._network!r}; "
                "sign one with palio token create --network, as auth.network says"
            )
        ahead_s = 0.0 if at is None else claims.iat - at.wall_us / 1e6
        if ahead_s > MAX_SKEW_S:
            raise NotAuthenticated(
                f"a token that is made {ahead_s:.0f} s from now; a difference of clocks is taken "
                f"to be {MAX_SKEW_S:.0f} s at most (MAX_SKEW_S): set the clocks of both machines"
            )
        return principal

    def _without_token(self, transport_name: str, at: Moment) -> Principal:
        """A certificate may do instead, where some are listed."""
        if transport_name in self._listed:
            return self._named.authenticate("", transport_name, at)
        holder = f"{transport_name!r} was granted nothing" if transport_name else "no token"
        also = "; or a client certificate whose subject is in [auth.grants]" if self._listed else ""
        raise NotAuthenticated(f"{holder}; {SHOW_TOKEN}{also}")

    def check(self, principal: Principal, at: Moment) -> None:
        """Check that a principal is still good (`Authority`)."""
        if not principal.token:
            self._named.check(principal, at)
            return
        self._look(at.now)
        principal.check(at)
        self._check_revoked(principal)

    def _check_revoked(self, principal: Principal) -> None:
        if principal.token in self._revoked:
            raise NotAuthenticated(f"the token of {principal.name!r} was revoked")

    def _look(self, now: float) -> None:
        if now - self._looked_at >= LOOK_AGAIN_S:
            self._looked_at = now
            if self._listing.look():
                self._revoked |= self._listing.value
            if self._keys.look():
                self._bound.clear()


def _stamp(path: Path) -> tuple[Path, int, int]:
    try:
        status = path.stat()
    except OSError:
        return path, 0, 0
    return path, status.st_mtime_ns, status.st_size
