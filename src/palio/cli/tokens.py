"""`palio keys` and `palio token`: who may do what, signed, and the keys that sign and verify it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from palio import files
from palio.cli import inputs
from palio.cli.application import AsJson
from palio.cli.reporting import show
from palio.errors import InvalidInput, NotAuthenticated

if TYPE_CHECKING:
    from palio.server.tokens import Claims, Header

keys_commands: Final = typer.Typer(no_args_is_help=True, help="Make and list the keys of tokens.")
token_commands: Final = typer.Typer(no_args_is_help=True, help="Make and read tokens.")


@keys_commands.command("create")
def keys_create(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Where the private key goes.")],
    as_json: AsJson = False,
) -> int:
    """Make a pair of keys: FILE signs tokens, FILE.pub verifies them."""
    from palio.server import keyfiles

    key_id = keyfiles.create_key(path)
    public = f"{path}.pub"
    if as_json:
        show({"id": key_id, "private": str(path), "public": public})
    else:
        show(f"key {key_id}\n  {path}: signs tokens; keep it\n  {public}: give it to brokers")
    return 0


@keys_commands.command("list")
def keys_list(
    path: Annotated[Path, typer.Argument(metavar="FILE|DIR", help="A public key, or many.")],
    as_json: AsJson = False,
) -> int:
    """List the public keys that a broker would accept."""
    from palio.server import keyfiles

    key_ids = sorted(keyfiles.load_public_keys(path))
    show({"keys": key_ids} if as_json else "\n".join(key_ids) or f"no key in {path}")
    return 0 if key_ids else 1


@token_commands.command("create")
def token_create(  # noqa: PLR0913, PLR0917  # typer makes an option of each
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The private key that signs it.")],
    allow_publish: Annotated[str, typer.Option(metavar="FILTER", help="Default: nothing.")] = "",
    allow_subscribe: Annotated[str, typer.Option(metavar="FILTER", help="Default: nothing.")] = "",
    deny_publish: Annotated[str, typer.Option(metavar="FILTER", help="Never this.")] = "",
    deny_subscribe: Annotated[str, typer.Option(metavar="FILTER", help="Never this.")] = "",
    monitor: Annotated[
        bool, typer.Option("--monitor", help="May see data of others: topology, trace, metrics.")
    ] = False,
    operate: Annotated[
        bool, typer.Option("--operate", help="May add, drain and remove brokers, apply plans.")
    ] = False,
    identity: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name under which it may act."),
    ] = None,
    broker_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE.pub", help="For the broker that has the key to this one."),
    ] = None,
    network: Annotated[
        str, typer.Option(metavar="NAME", help="The auth.network of the brokers, if they have one.")
    ] = "",
    expires: Annotated[str, typer.Option(metavar="TIME", help="In 90s, 15m, 12h, 30d.")] = "30d",
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=NUMBER", help="sessions, subscriptions, events_per_s or bytes_per_s."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A new file, for its owner only.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Sign a token: who someone is, and the filters of what they may publish and receive."""
    import secrets

    from palio.server import keyfiles, tokens

    now = int(time.time())
    claims = tokens.Claims(
        sub=name,
        jti=secrets.token_hex(8),
        iat=now,
        exp=now + _seconds(expires),
        aud=network,
        allow_publish=allow_publish,
        allow_subscribe=allow_subscribe,
        deny_publish=deny_publish,
        deny_subscribe=deny_subscribe,
        monitor=monitor,
        operate=operate,
        identities=tuple(identity or ()),
        limits=dict(map(_limit, limit or ())),
        broker="" if broker_key is None else _broker_key(broker_key),
    )
    token = tokens.sign(claims, keyfiles.load_private_key(key))
    if output is None:
        show({"token": token, "id": claims.jti} if as_json else token)
        return 0
    try:
        with files.create(output) as file:
            file.write(f"{token}\n".encode())
    except OSError as error:
        raise InvalidInput(f"cannot write the token {str(output)!r}: {error.strerror}") from None
    show({"file": str(output), "id": claims.jti} if as_json else f"token {claims.jti}: {output}")
    return 0


@token_commands.command("inspect")
def token_inspect(
    token: Annotated[
        str, typer.Argument(metavar="FILE", help="Holds the token; - for standard input.")
    ] = "-",
    keys: Annotated[
        Path | None, typer.Option(metavar="FILE|DIR", help="Verify its signature with these.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show what a token grants. Ends with 1 if it has expired or its signature is not good."""
    import msgspec

    from palio.server import tokens

    text = inputs.token_of(token)
    header, claims = tokens.inspect(text)
    problem = "not checked: give --keys" if keys is None else _signature_error(text, keys)
    expired = time.time() >= claims.exp
    if as_json:
        document: dict[str, Any] = msgspec.to_builtins(claims)
        show(
            {
                "key": header.kid,
                "claims": document,
                "expired": expired,
                "signature": problem or "valid",
            }
        )
    else:
        show("\n".join(_described(header, claims, expired=expired, signature=problem or "valid")))
    return 1 if expired or (keys is not None and problem) else 0


@token_commands.command("revoke")
def token_revoke(
    token: Annotated[
        str, typer.Argument(metavar="ID|FILE|-", help="A token's id, or a file with the token.")
    ],
    file: Annotated[Path, typer.Option(metavar="FILE", help="The brokers' file of revocations.")],
    as_json: AsJson = False,
) -> int:
    """Add a token to the file of revocations; brokers read it again within a second."""
    from palio.server import tokens

    token_id = token
    if token == "-" or inputs.looks_like_token(token) or inputs.names_a_file(token):
        text = inputs.token_of(token)
        if not inputs.looks_like_token(text):
            raise InvalidInput(
                f"{token!r:.200} holds no token; name a file with one, or give its id"
            )
        token_id = tokens.inspect(text)[1].jti
    tokens.revoke(file, token_id)
    show({"revoked": token_id} if as_json else f"revoked {token_id}")
    return 0


def _seconds(text: str) -> int:
    """The seconds of `--expires`: whole ones, as tokens count them."""
    from palio.config import duration

    seconds = ceil(duration(text).total_seconds())
    if not seconds:
        raise InvalidInput("--expires: a token lasts 1s at least")
    return seconds


def _limit(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise InvalidInput(f"--limit {text!r:.40}: write it as events_per_s=1000") from None


def _broker_key(path: Path) -> str:
    from palio.server import keyfiles

    keys = list(keyfiles.load_public_keys(path).values())
    if len(keys) != 1:
        raise InvalidInput(f"--broker-key {str(path)!r}: give the one public key of that broker")
    return keyfiles.public_key_text(keys[0])


def _signature_error(token: str, keys: Path) -> str:
    """Return why the signature is not valid; empty if it is."""
    from palio.server import keyfiles, tokens

    try:
        tokens.verify(token, keyfiles.load_public_keys(keys))
    except NotAuthenticated as error:
        return str(error)
    return ""


def _described(header: Header, claims: Claims, *, expired: bool, signature: str) -> list[str]:
    until = datetime.fromtimestamp(claims.exp, UTC).isoformat()
    filters = ("allow_publish", "allow_subscribe", "deny_publish", "deny_subscribe")
    limits = ", ".join(f"{name} {number:g}" for name, number in claims.limits.items())
    rows = {
        "name": claims.sub,
        "id": claims.jti,
        "network": claims.aud or "without a name",
        "key": f"{header.kid} ({signature})",
        "expires": f"{until}{' (it has expired)' if expired else ''}",
        **{name: getattr(claims, name) or "nothing" for name in filters},
        "monitor": "yes" if claims.monitor else "no",
        "operate": "yes" if claims.operate else "no",
        "broker": f"with the key {claims.broker}" if claims.broker else "no",
        "acts as": ", ".join((claims.sub, *claims.identities)),
        "limits": limits or "none",
    }
    return [f"{label:15} {value}" for label, value in rows.items()]
