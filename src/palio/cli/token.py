"""`palio token`: who may do what, signed."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from palio import files
from palio.cli import inputs
from palio.cli.reporting import show
from palio.errors import InvalidInput, NotAuthenticated
from palio.server import tokens

__all__ = ["create_token", "inspect_token", "revoke_token"]

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

_DURATION: Final = re.compile(r"([0-9]{1,9})([smhd])")


def create_token(
    key: Path,
    name: str,
    grants: Mapping[str, Any],
    *,
    expires: str,
    limits: Sequence[str],
    out: Path | None = None,
    broker: Path | None = None,
    as_json: bool = False,
) -> int:
    """Sign a token, and print it or write it to a new file that only its owner may read."""
    now = int(time.time())
    claims = tokens.Claims(
        sub=name,
        jti=secrets.token_hex(8),
        iat=now,
        exp=now + seconds(expires),
        limits=dict(map(_limit, limits)),
        broker="" if broker is None else _broker_key(broker),
        **grants,
    )
    token = tokens.sign(claims, tokens.load_private_key(key))
    if out is None:
        show({"token": token, "id": claims.jti} if as_json else token)
        return 0
    try:
        with files.create(out) as file:
            file.write(f"{token}\n".encode())
    except OSError as error:
        raise InvalidInput(f"cannot write the token {str(out)!r}: {error.strerror}") from None
    show({"file": str(out), "id": claims.jti} if as_json else f"token {claims.jti}: {out}")
    return 0


def inspect_token(source: str, keys: Path | None, *, as_json: bool = False) -> int:
    """Say what the token of a file grants and whether it would be accepted; 1 if not."""
    token = inputs.token_of(source)
    header, claims = tokens.inspect(token)
    problem = "not checked: give --keys" if keys is None else _problem(token, keys)
    expired = time.time() >= claims.exp
    if as_json:
        said: dict[str, Any] = msgspec.to_builtins(claims)
        show(
            {"key": header.kid, "claims": said, "expired": expired, "signature": problem or "valid"}
        )
    else:
        show("\n".join(_described(header, claims, expired=expired, signature=problem or "valid")))
    return 1 if expired or (keys is not None and problem) else 0


def revoke_token(given: str, path: Path, *, as_json: bool = False) -> int:
    """Note in a file that a token, given by its number or on standard input, is good no longer."""
    number = given
    if given == "-" or inputs.looks_like_token(given):
        number = inputs.token_of(given)
    if inputs.looks_like_token(number):
        number = tokens.inspect(number)[1].jti
    tokens.revoke(path, number)
    show({"revoked": number} if as_json else f"revoked {number}")
    return 0


def seconds(text: str) -> int:
    """A duration: a number and a unit.

    >>> seconds("90m"), seconds("30d")
    (5400, 2592000)
    """
    found = _DURATION.fullmatch(text)
    if found is None or int(found[1]) == 0:
        raise InvalidInput(f"{text!r:.40} is no duration; write 90s, 15m, 12h or 30d")
    return int(found[1]) * _UNITS[found[2]]


def _limit(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise InvalidInput(f"--limit {text!r:.40}: write it as events_per_s=1000") from None


def _broker_key(path: Path) -> str:
    keys = list(tokens.load_public_keys(path).values())
    if len(keys) != 1:
        raise InvalidInput(f"--broker {str(path)!r}: give the one public key of that broker")
    return tokens.public_key_text(keys[0])


def _problem(token: str, keys: Path) -> str:
    try:
        tokens.verify(token, tokens.load_public_keys(keys))
    except NotAuthenticated as error:
        return str(error)
    return ""


def _described(
    header: tokens.Header, claims: tokens.Claims, *, expired: bool, signature: str
) -> list[str]:
    until = datetime.fromtimestamp(claims.exp, UTC).isoformat()
    lines = [
        f"name         {claims.sub}",
        f"number       {claims.jti}",
        f"key          {header.kid} ({signature})",
        f"expires      {until}{' (it has expired)' if expired else ''}",
    ]
    for name in ("may_publish", "may_hear", "deny_publish", "deny_hear"):
        filter = getattr(claims, name)
        lines.append(f"{name.replace('_', ' '):12} {filter or 'nothing'}")
    lines.append(f"{'monitor':12} {'yes' if claims.monitor else 'no'}")
    lines.append(f"{'broker':12} {f'with the key {claims.broker}' if claims.broker else 'no'}")
    lines.append(f"acts as      {', '.join((claims.sub, *claims.identities))}")
    limits = ", ".join(f"{name} {number:g}" for name, number in claims.limits.items())
    return [*lines, f"limits       {limits or 'none'}"]
