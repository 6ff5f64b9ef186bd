"""Tokens: who someone is and what is granted to them, signed, expiring, and verified offline.

A token is a JSON Web Token with one algorithm, Ed25519 (`alg: EdDSA`), so that ordinary tools read
it. PyJWT reads and signs the format; the claims are Palio's own, and strict. The header names the
key (`kid`), so that several keys may be in use while one replaces another. docs/howto/authority.md
has the claims and an example.

A token with the claim `broker` is bound to a key of its own: `BoundToken` is that token and its
key, and proves by signatures that it has both. Such a token may be seen by everybody.

A broker needs public keys only. `TokenAuthority` reads them from a directory (`*.pub`), and the
numbers of revoked tokens from a file, again whenever these change.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from jwt import PyJWS, PyJWTError

from palio import files
from palio.errors import InvalidInput, LimitExceeded, NotAuthenticated, PalioError
from palio.language.parsing import parse_filter
from palio.model.filters import FALSE, Filter
from palio.node.authority import ANYONE, Limits, NamedAuthority, Principal
from palio.node.effects import Moment

__all__ = [
    "MAX_TOKEN_CHARS",
    "BoundToken",
    "Claims",
    "Header",
    "TokenAuthority",
    "create_key",
    "inspect",
    "key_id",
    "load_private_key",
    "load_public_keys",
    "public_key_text",
    "revoke",
    "sign",
    "verify",
]

logger: Final = logging.getLogger("palio.server")

ALGORITHM: Final = "EdDSA"
"""The one algorithm of tokens: a header that names another is refused before any key is used."""

MAX_TOKEN_CHARS: Final = 8_192
"""A token: with its name it fits into a greeting, and its grants into a header of HTTP."""

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

_JWS: Final = PyJWS(algorithms=[ALGORITHM])

_GRANTS: Final = ("may_publish", "may_hear", "deny_publish", "deny_hear")


class Header(msgspec.Struct, frozen=True):
    """The first part of a token."""

    alg: str
    kid: str


class Claims(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The second part: times are seconds since 1970, filters are texts, no filter is no grant."""

    sub: str
    jti: str
    iat: int
    exp: int
    may_publish: str = ""
    may_hear: str = ""
    deny_publish: str = ""
    deny_hear: str = ""
    monitor: bool = False
    broker: str = ""
    """The public key, 32 bytes in base64url, that the broker of this name must have."""
    identities: tuple[str, ...] = ()
    limits: dict[str, float] = {}

    def principal(self) -> Principal:
        """Who this is. Filters that nobody can read are the fault of whoever signed them."""
        if self.sub == ANYONE:
            raise InvalidInput(f"{ANYONE!r} is the name of those who show no token; take another")
        if self.broker:
            _bound_key(self.broker)
        if not 0 <= self.iat < self.exp <= MAX_TIME_S:
            raise InvalidInput(
                f"a token is good from iat {self.iat} until exp {self.exp}, in seconds since 1970: "
                f"exp is above iat, and no later than {MAX_TIME_S} (the year 9999, MAX_TIME_S)"
            )
        grants = {name: _filter(getattr(self, name)) for name in _GRANTS}
        return Principal(
            self.sub,
            **grants,
            limits=Limits.of(self.limits),
            may_monitor=self.monitor,
            may_link=bool(self.broker),
            identities=frozenset(self.identities),
            key=self.broker,
            expires_us=self.exp * 1_000_000,
            token=self.jti,
        )


def _filter(text: str) -> Filter:
    return parse_filter(text) if text else FALSE


# --- keys ---


def key_id(key: Ed25519PublicKey) -> str:
    """What a token calls the key that it was signed with: a hash of the public key."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def create_key(path: Path) -> str:
    """Write a new pair of keys, `path` (for its owner's eyes only) and `path` + `.pub`; its id.

    An existing file is never overwritten.
    """
    key = Ed25519PrivateKey.generate()
    public = key.public_key()
    private_text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public_text = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    _write_new(path, private_text, 0o600)
    _write_new(path.with_name(path.name + ".pub"), public_text, 0o644)
    return key_id(public)


def _write_new(path: Path, text: bytes, mode: int) -> None:
    try:
        with files.create(path, mode) as file:
            file.write(text)
    except OSError as error:
        raise InvalidInput(f"cannot write the key {str(path)!r}: {error.strerror}") from None


def load_private_key(path: Path) -> Ed25519PrivateKey:
    """The key that signs. Refused if others than its owner may read the file."""
    try:
        text = files.read_secret(path, "the key")
    except OSError as error:
        raise _unreadable(path, error) from None
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{str(path)!r} holds no private key: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(f"{str(path)!r} holds a key of another kind; make one: palio keys")
    return key


def load_public_keys(path: Path) -> dict[str, Ed25519PublicKey]:
    """The keys that verify, by their ids: one file, or all `*.pub` of a directory."""
    found = sorted(path.glob("*.pub")) if path.is_dir() else [path]
    return {key_id(key): key for key in map(_public_key, found)}


def _public_key(path: Path) -> Ed25519PublicKey:
    try:
        key = serialization.load_pem_public_key(_read(path))
    except ValueError as error:
        raise InvalidInput(f"{str(path)!r} holds no public key: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput(f"{str(path)!r} holds a key of another kind than Ed25519")
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> InvalidInput:
    return InvalidInput(f"cannot read the key {str(path)!r}: {error.strerror}")


def public_key_text(key: Ed25519PublicKey) -> str:
    """A public key as the claim `broker` has it.

    >>> len(public_key_text(Ed25519PrivateKey.generate().public_key()))
    43
    """
    return base64.urlsafe_b64encode(key.public_bytes_raw()).rstrip(b"=").decode()


def _bound_key(text: str) -> Ed25519PublicKey:
    try:
        raw = base64.b64decode(f"{text}=", altchars=b"-_", validate=True)
        return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:  # its alphabet or its length
        raise InvalidInput(
            f"the claim broker is {text!r:.60}; it is an Ed25519 public key: 32 bytes in base64url"
        ) from None


# --- tokens ---


def sign(claims: Claims, key: Ed25519PrivateKey) -> str:
    """A token. Its filters are read first: nobody gets one that no broker could read.

    >>> key = Ed25519PrivateKey.generate()
    >>> token = sign(Claims("alice", "1", iat=0, exp=60, may_hear="price < 5"), key)
    >>> verify(token, {key_id(key.public_key()): key.public_key()}).sub
    'alice'
    """
    claims.principal()
    kid = key_id(key.public_key())
    token = _JWS.encode(msgspec.json.encode(claims), key, ALGORITHM, {"kid": kid})
    if len(token) > MAX_TOKEN_CHARS:
        raise LimitExceeded(
            "a token", limit="MAX_TOKEN_CHARS", maximum=MAX_TOKEN_CHARS, actual=len(token)
        )
    return token


def verify(token: str, keys: Mapping[str, Ed25519PublicKey]) -> Claims:
    """The claims of a token that one of these keys has signed; its times are not looked at."""
    header, claims = inspect(token)
    if header.alg != ALGORITHM:
        raise NotAuthenticated(
            f"a token signed by {header.alg!r:.40}; only {ALGORITHM} is accepted"
        )
    key = keys.get(header.kid)
    if key is None:
        raise NotAuthenticated(f"a token signed with the key {header.kid!r:.40}, which is unknown")
    try:
        _JWS.decode(token, key, algorithms=[ALGORITHM])
    except PyJWTError:
        raise NotAuthenticated("a token whose signature is not that of its key") from None
    return claims


def inspect(token: str) -> tuple[Header, Claims]:
    """Header and claims, whoever signed them. For people; a broker calls `verify`."""
    if len(token) > MAX_TOKEN_CHARS:
        raise NotAuthenticated(
            f"a token of {len(token)} characters; {MAX_TOKEN_CHARS} are the most (MAX_TOKEN_CHARS)"
        )
    try:
        parts = _JWS.decode_complete(token, options={"verify_signature": False})
        header = msgspec.convert(parts["header"], Header)
        return header, msgspec.json.decode(parts["payload"], type=Claims)
    except (PyJWTError, msgspec.MsgspecError, ValueError):  # parts, base64, claims, UTF-8
        raise NotAuthenticated("what was shown is no token of Palio's") from None


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
                f"make one with palio token create {claims.sub} --broker {claims.sub}.pub"
            )
        if claims.broker != public_key_text(key.public_key()):
            raise InvalidInput(
                f"the token of {claims.sub!r} is bound to another key than this one; "
                "give the key whose .pub was named by --broker"
            )
        self.token = token
        self.name = claims.sub
        self._key = key

    def sign(self, data: bytes) -> bytes:
        """See `palio.node.identity.Identity`."""
        return self._key.sign(data)


# --- authority ---


def revoke(path: Path, token_id: str) -> None:
    """Add a token's number (`jti`) to a file of revoked ones."""
    if not token_id or token_id.split() != [token_id]:
        raise InvalidInput(f"{token_id!r:.40} is no token's number: it has no spaces")
    files.append(path, f"{token_id}\n")


class TokenAuthority:
    """Knows principals by their tokens, and brokers by their certificates.

    A connection that shows a token is known by it alone; one that shows none, by the name in its
    client certificate, if that is listed.
    """

    def __init__(
        self,
        keys: Path,
        *,
        revoked: Path | None = None,
        named: Mapping[str, Principal] | None = None,
    ) -> None:
        self._listed = frozenset(named or {})
        self._named = NamedAuthority(named or {})
        self._keys_path = keys
        self._revoked_path = revoked
        self._looked_at = float("-inf")
        self._stamps: object = None
        self._keys: dict[str, Ed25519PublicKey] = {}
        self._revoked: frozenset[str] = frozenset()
        self._bound: dict[str, Principal] = {}
        """Tokens of brokers that were verified with the keys of now."""
        self._refresh()

    def authenticate(self, token: str, transport_name: str, at: Moment) -> Principal:
        """See `Authority`."""
        principal = self._shown(token, transport_name, at)
        principal.check_client()
        return principal

    def authenticate_broker(self, token: str, transport_name: str, at: Moment) -> Principal:
        """See `Authority`."""
        principal = self._shown(token, transport_name, at)
        principal.check_broker()
        return principal

    def verified(self, token: str, data: bytes, signature: bytes, at: Moment) -> Principal:
        """See `Authority`."""
        self._look(at.now)
        principal = self._bound.get(token)
        if principal is None:
            principal = self._read(token)
            principal.check_broker()
            if len(self._bound) >= MAX_BOUND:
                self._bound.clear()
            self._bound[token] = principal
        self._check_revoked(principal)
        try:
            _bound_key(principal.key).verify(signature, data)
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
        """Whom a token names; with a moment, if it may have been made by then."""
        try:
            claims = verify(token, self._keys)
            principal = claims.principal()
        except NotAuthenticated:
            raise
        except PalioError as error:
            raise NotAuthenticated(f"a token with a grant that cannot be read: {error}") from None
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
        who = f"{transport_name!r} was granted nothing" if transport_name else "no token"
        also = "; or a client certificate whose subject is in [auth.grants]" if self._listed else ""
        raise NotAuthenticated(f"{who}; {SHOW_TOKEN}{also}")

    def check(self, principal: Principal, at: Moment) -> None:
        """See `Authority`."""
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
            try:
                self._refresh()
            except (PalioError, OSError) as error:  # half a key was written: it is read next time
                logger.warning("keys and revocations stay as they were: %s", error)

    def _refresh(self) -> None:
        """Read keys and revocations, if their files have changed; a file that is gone stays."""
        stamps = [_stamp(path) for path in self._files()]
        if stamps != self._stamps:
            self._keys = load_public_keys(self._keys_path)
            self._bound.clear()
            if self._revoked_path is not None and self._revoked_path.exists():
                self._revoked = frozenset(self._revoked_path.read_text("utf-8").split())
            self._stamps = stamps

    def _files(self) -> list[Path]:
        keys = self._keys_path
        found = sorted(keys.glob("*.pub")) if keys.is_dir() else [keys]
        return found if self._revoked_path is None else [*found, self._revoked_path]


def _stamp(path: Path) -> tuple[Path, int, int]:
    try:
        found = path.stat()
    except OSError:
        return path, 0, 0
    return path, found.st_mtime_ns, found.st_size
