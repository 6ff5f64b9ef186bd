from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from palio.errors import InvalidInput, LimitExceeded, NotAuthenticated
from palio.model.filters import FALSE, TRUE
from palio.node.authority import Limits, Principal
from palio.node.effects import Moment
from palio.server import tokens
from palio.server.keyfiles import (
    create_key,
    key_id,
    load_private_key,
    load_public_keys,
    public_key_text,
)
from palio.server.tokens import (
    LOOK_AGAIN_S,
    MAX_SKEW_S,
    MAX_TIME_S,
    MAX_TOKEN_CHARS,
    BoundToken,
    Claims,
    TokenAuthority,
    inspect,
    revoke,
    sign,
    verify,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEYS = {key_id(KEY.public_key()): KEY.public_key()}
ALICE = Claims(
    "alice", "t1", iat=100, exp=200, allow_subscribe="price < 5", limits={"subscriptions": 3}
)
TOKEN = sign(ALICE, KEY)


def at(now: float, wall_s: float = 150) -> Moment:
    return Moment(now, int(wall_s * 1e6))


def forged(
    header: dict[str, Any], claims: dict[str, Any] | str, key: Ed25519PrivateKey = KEY
) -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    text = claims if isinstance(claims, str) else json.dumps(claims)
    signed = f"{part(json.dumps(header).encode())}.{part(text.encode())}"
    return f"{signed}.{part(key.sign(signed.encode()))}"


HEADER = {"alg": "EdDSA", "kid": next(iter(KEYS)), "typ": "JWT"}
CLAIMS: dict[str, Any] = msgspec.to_builtins(ALICE)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    create_key(tmp_path / "first")
    return tmp_path


# --- tokens ---


def test_a_token_says_what_was_signed() -> None:
    assert verify(TOKEN, KEYS) == ALICE
    header, claims = inspect(TOKEN)
    assert (header.alg, header.kid, claims) == ("EdDSA", next(iter(KEYS)), ALICE)


def test_a_token_becomes_a_principal() -> None:
    principal = ALICE.principal()
    assert str(principal.allow_subscribe) == "price < 5"
    assert principal.allow_publish == FALSE
    assert principal.limits == Limits(subscriptions=3)
    assert (principal.expires_us, principal.token) == (200_000_000, "t1")


def test_a_token_may_grant_to_act_under_other_names() -> None:
    assert ALICE.principal().identities == frozenset()
    planner = msgspec.structs.replace(ALICE, identities=("ann", "bob"))
    principal = verify(sign(planner, KEY), KEYS).principal()
    assert principal.identities == {"ann", "bob"}
    with pytest.raises(InvalidInput, match="an identity cannot be called"):
        sign(msgspec.structs.replace(ALICE, identities=("ann", "../bob")), KEY)


def test_a_token_is_a_json_web_token() -> None:
    header, claims, _ = TOKEN.split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == HEADER
    assert json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"] == "alice"


@pytest.mark.parametrize("header", [{"alg": "none"}, {"alg": "HS256"}, {"kid": "another"}])
def test_another_algorithm_or_key_is_refused(header: dict[str, Any]) -> None:
    with pytest.raises(NotAuthenticated, match="a token signed"):
        verify(forged(HEADER | header, CLAIMS), KEYS)


def test_another_signature_is_refused() -> None:
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    with pytest.raises(NotAuthenticated, match="signature is not that of its key"):
        verify(forged(HEADER, CLAIMS, other), KEYS)


NAMELESS = {key: value for key, value in CLAIMS.items() if key != "sub"}


@pytest.mark.parametrize(
    ("header", "claims"),
    [
        *(({"crit": ["exp"]}, CLAIMS), ({"crit": ["b64"], "b64": False}, CLAIMS)),
        *(({"b64": False}, CLAIMS), ({"kid": 1}, CLAIMS), ({"alg": 1}, CLAIMS)),
        *(({"crit": ["b64"], "b64": True}, CLAIMS), ({"b64": True}, CLAIMS)),
        *(({"jku": "https://keys"}, CLAIMS), ({"typ": 1}, CLAIMS), ({}, CLAIMS | {"aud": ["n"]})),
        *(({}, CLAIMS | {"exp": "soon"}), ({}, CLAIMS | {"may_fly": "TRUE"}), ({}, NAMELESS)),
    ],
)
def test_a_header_or_claims_that_are_none_of_ours_are_refused(
    header: dict[str, Any], claims: dict[str, Any]
) -> None:
    with pytest.raises(NotAuthenticated, match="no token of Palio's"):
        verify(forged(HEADER | header, claims), KEYS)


@pytest.mark.parametrize(
    ("once", "twice"),
    [
        ('"sub": "alice"', '"sub": "bob", "sub": "alice"'),
        ('"exp": 200', '"exp": 200, "exp": 200'),
        ('{"subscriptions": 3}', '{"subscriptions": 1, "subscriptions": 3}'),
    ],
)
def test_a_claim_that_is_said_twice_is_refused(once: str, twice: str) -> None:
    text = json.dumps(CLAIMS)
    assert verify(forged(HEADER, text), KEYS) == ALICE
    assert once in text
    with pytest.raises(NotAuthenticated, match="no token of Palio's"):
        verify(forged(HEADER, text.replace(once, twice)), KEYS)


def test_claims_are_read_once_the_signature_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[object]()
    monkeypatch.setattr(tokens, "read_document", read.append)
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    with pytest.raises(NotAuthenticated, match="signature is not that of its key"):
        verify(forged(HEADER, CLAIMS, other), KEYS)
    assert read == []


NESTED = base64.urlsafe_b64encode(b'{"a":' + b"[" * 3_000).decode()


@pytest.mark.parametrize(
    "token",
    ["", "x", "a.b", "a.b.c", "a.b.c.d", "é.é.é", "\ud800.a.b", f"{NESTED}.a.b", TOKEN[:-10]],
)
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(NotAuthenticated):
        verify(token, KEYS)


@given(st.integers(0, len(TOKEN) - 1), st.characters(codec="ascii"))
def test_no_changed_token_grants_anything_else(place: int, character: str) -> None:
    changed = TOKEN[:place] + character + TOKEN[place + 1 :]
    with suppress(NotAuthenticated):
        assert verify(changed, KEYS) == ALICE


def test_length_is_limited() -> None:
    def token(length: int) -> str:
        return sign(msgspec.structs.replace(ALICE, allow_subscribe=f"s = '{'n' * length}'"), KEY)

    fits = next(n for n in range(MAX_TOKEN_CHARS, 0, -1) if _fits(token, n))
    assert MAX_TOKEN_CHARS - 4 <= len(token(fits)) <= MAX_TOKEN_CHARS
    with pytest.raises(LimitExceeded, match="MAX_TOKEN_CHARS"):
        token(fits + 1)
    for length, problem in ((MAX_TOKEN_CHARS, "no token"), (MAX_TOKEN_CHARS + 1, "are the most")):
        with pytest.raises(NotAuthenticated, match=problem):
            verify("a" * length, KEYS)


UNWRITABLE = ("", "two words", " t1", "t1\n", "t\u00a01", "\ufefft1", "t\0", "é", "x" * 201)


def _fits(token: Any, length: int) -> bool:
    if length > 0.75 * MAX_TOKEN_CHARS:
        return False
    try:
        token(length)
    except LimitExceeded:
        return False
    return True


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"allow_subscribe": "price <"}, "line 1"),
        ({"allow_subscribe": "price < :limit"}, "the parameter :limit"),
        ({"exp": 100}, "exp is above iat"),
        ({"exp": MAX_TIME_S + 1}, "MAX_TIME_S"),
        ({"exp": 10**400}, "MAX_TIME_S"),
        ({"iat": -1}, "in seconds since 1970"),
        ({"limits": {"events_per_s": math.inf}}, "events_per_s is inf"),
        ({"limits": {"bytes_per_s": math.nan}}, "bytes_per_s is nan"),
        ({"sub": ".."}, r"a principal cannot be called '\.\.'"),
        ({"sub": "a\x1bb"}, "cannot be called"),
        ({"limits": {"bananas": 1}}, "'bananas' is no limit"),
        ({"limits": {"events_per_s": 0}}, "events_per_s is 0"),
        ({"limits": {"sessions": 0.5}}, "sessions is 0"),
        ({"limits": {"subscriptions": math.inf}}, "subscriptions is inf"),
        ({"sub": ""}, "a name has 1 to 200 bytes"),
        ({"sub": "anyone"}, "those who show no token"),
        *(({"jti": jti}, r"no token's number \(jti\): 1 to 200") for jti in UNWRITABLE),
        ({"aud": "a/b"}, "a network cannot be called 'a/b'"),
    ],
)
def test_nobody_signs_what_means_nothing(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        sign(msgspec.structs.replace(ALICE, **change), KEY)


# --- keys ---


def test_keys_are_files(keys: Path) -> None:
    private, public = keys / "first", keys / "first.pub"
    assert private.stat().st_mode & 0o777 == 0o600
    assert load_public_keys(public) == load_public_keys(keys)
    assert verify(sign(ALICE, load_private_key(private)), load_public_keys(keys)) == ALICE


def test_a_key_is_never_overwritten(keys: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot write the key .*: File exists"):
        create_key(keys / "first")


def test_a_private_key_that_others_may_read_is_refused(keys: Path) -> None:
    (keys / "first").chmod(0o640)
    with pytest.raises(InvalidInput, match=r"mode 0640\); chmod 600 it"):
        load_private_key(keys / "first")


def test_a_file_that_is_no_key_is_named(keys: Path) -> None:
    (keys / "first").write_text("nonsense")
    (keys / "bad.pub").write_text("nonsense")
    with pytest.raises(InvalidInput, match="first' holds no private key"):
        load_private_key(keys / "first")
    with pytest.raises(InvalidInput, match=r"bad\.pub' holds no public key"):
        load_public_keys(keys)
    with pytest.raises(InvalidInput, match=r"cannot read the key .*absent"):
        load_public_keys(keys / "absent")


# --- authority ---


def test_an_authority_knows_principals_by_their_tokens(keys: Path) -> None:
    authority = TokenAuthority(keys)
    token = sign(ALICE, load_private_key(keys / "first"))
    alice = authority.authenticate(token, "ignored", at(0))
    assert alice == ALICE.principal()
    authority.check(alice, at(0))
    with pytest.raises(NotAuthenticated, match="'alice' has expired"):
        authority.authenticate(token, "", at(0, 200))
    with pytest.raises(NotAuthenticated, match="'alice' has expired"):
        authority.check(alice, at(0, 200))
    with pytest.raises(NotAuthenticated, match="which is unknown"):
        authority.authenticate(TOKEN, "", at(0))
    with pytest.raises(NotAuthenticated, match=r"^no token; show a token: .* HTTP$"):
        authority.authenticate("", "", at(0))


def test_clients_are_known_by_their_certificates_too(keys: Path) -> None:
    north = Principal("north", TRUE, TRUE)
    authority = TokenAuthority(keys, named={"north": north})
    assert authority.authenticate("", "north", at(0)) is north
    authority.check(north, at(0))
    for name, who in (("south", "'south' was granted nothing"), ("", "no token")):
        with pytest.raises(NotAuthenticated, match=rf"^{who}; show a token: .*; or a client cert"):
            authority.authenticate("", name, at(0))


def test_a_token_is_good_until_the_end_of_the_calendar() -> None:
    last = msgspec.structs.replace(ALICE, exp=MAX_TIME_S)
    assert verify(sign(last, KEY), KEYS).principal().expires_us == MAX_TIME_S * 1_000_000


@pytest.mark.parametrize(("early_s", "is_taken"), [(0, True), (1, False)])
def test_a_token_from_the_future_is_a_difference_of_clocks_or_refused(
    keys: Path, early_s: int, is_taken: bool
) -> None:
    token = sign(ALICE, load_private_key(keys / "first"))
    now = at(0, ALICE.iat - MAX_SKEW_S - early_s)
    if is_taken:
        TokenAuthority(keys).authenticate(token, "", now)
    else:
        with pytest.raises(NotAuthenticated, match=r"made 301 s from now.*MAX_SKEW_S"):
            TokenAuthority(keys).authenticate(token, "", now)


@pytest.mark.parametrize(
    "claims",
    [
        *(
            {"exp": 10**30},
            {"exp": 50},
            {"sub": "a/b"},
            {"sub": ".."},
            {"allow_subscribe": "price <"},
        ),
        *({"jti": jti} for jti in UNWRITABLE),
    ],
)
def test_a_signed_token_whose_claims_mean_nothing_is_refused(
    keys: Path, claims: dict[str, Any]
) -> None:
    key = load_private_key(keys / "first")
    header = {**HEADER, "kid": key_id(key.public_key())}
    with pytest.raises(NotAuthenticated, match="a grant that cannot be read"):
        TokenAuthority(keys).authenticate(forged(header, {**CLAIMS, **claims}, key), "", at(0))


def test_a_revoked_token_ends_within_a_second(keys: Path) -> None:
    authority, key = authority_of(keys)
    token = sign(ALICE, key)
    alice = authority.authenticate(token, "", at(0))
    revoke(keys / "revoked", "t0")
    revoke(keys / "revoked", "t1")
    authority.check(alice, at(LOOK_AGAIN_S / 2))
    with pytest.raises(NotAuthenticated, match="the token of 'alice' was revoked"):
        authority.check(alice, at(LOOK_AGAIN_S))
    with pytest.raises(NotAuthenticated, match="was revoked"):
        authority.authenticate(token, "", at(LOOK_AGAIN_S))


@pytest.mark.parametrize(
    ("becomes", "problem"),
    [(None, "No such file"), (b"", ""), (b"\xef\xbb\xbft2\n", ":1: "), (b"t2\n# all\n", ":2: ")],
    ids=["gone", "empty", "BOM", "comment"],
)
def test_what_was_revoked_stays_so_whatever_becomes_of_the_file(
    keys: Path, becomes: bytes | None, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    revoke(keys / "revoked", "t1")
    authority, key = authority_of(keys)
    token = sign(ALICE, key)
    if becomes is None:
        (keys / "revoked").unlink()
    else:
        (keys / "revoked").write_bytes(becomes)
    for look in range(1, 4):
        with pytest.raises(NotAuthenticated, match="was revoked"):
            authority.authenticate(token, "", at(look * LOOK_AGAIN_S))
    told = [
        each.__dict__["details"]["reason"] for each in caplog.records if each.levelname == "ERROR"
    ]
    assert len(told) == bool(problem)
    assert all(str(keys / "revoked") in each and problem in each for each in told)
    (keys / "revoked").write_text("t1\n\nt3\n")  # mended: it counts again
    other = sign(msgspec.structs.replace(ALICE, jti="t3"), key)
    with pytest.raises(NotAuthenticated, match="was revoked"):
        authority.authenticate(other, "", at(9 * LOOK_AGAIN_S))


def test_keys_are_taken_away_while_revocations_cannot_be_read_and_the_other_way_round(
    keys: Path,
) -> None:
    create_key(keys / "second")
    (keys / "revoked").touch()
    authority = TokenAuthority(keys, revoked=keys / "revoked")
    first, second = (sign(ALICE, load_private_key(keys / each)) for each in ("first", "second"))
    (keys / "revoked").unlink()
    (keys / "second.pub").unlink()
    assert authority.authenticate(first, "", at(LOOK_AGAIN_S)).name == "alice"
    with pytest.raises(NotAuthenticated, match="which is unknown"):
        authority.authenticate(second, "", at(LOOK_AGAIN_S))
    (keys / "half.pub").write_text("-----BEGIN")
    revoke(keys / "revoked", "t1")
    with pytest.raises(NotAuthenticated, match="was revoked"):
        authority.authenticate(first, "", at(3 * LOOK_AGAIN_S))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file or directory"),
        (b"\xef\xbb\xbft1\n", r"revoked:1: '\\ufefft1' is no token's number"),
        ("t1\n".encode("utf-16"), "revoked:1: .* is no token's number"),
        (b"t0\nt1 # lost\n", "revoked:2: 't1 # lost' is no token's number"),
        (b"t0\nt1 \n", "revoked:2: 't1 ' is no token's number"),
        (b"t" * 201, "is no token's number"),
    ],
)
def test_revocations_that_cannot_be_read_stop_the_start(
    keys: Path, content: bytes | None, problem: str
) -> None:
    if content is not None:
        (keys / "revoked").write_bytes(content)
    with pytest.raises((InvalidInput, OSError), match=problem):
        TokenAuthority(keys, revoked=keys / "revoked")


@pytest.mark.parametrize("content", [b"", b"t0\nt1", b"t0\r\nt1\r\n", b"\n\nt1\n", b"t" * 200])
def test_numbers_are_one_a_line(keys: Path, content: bytes) -> None:
    (keys / "revoked").write_bytes(content)
    TokenAuthority(keys, revoked=keys / "revoked")
    revoke(keys / "revoked", "t2")
    authority = TokenAuthority(keys, revoked=keys / "revoked")
    listed = {*content.decode().split(), "t2"}
    for jti in ("t0", "t1", "t2", "t" * 200):
        token = sign(msgspec.structs.replace(ALICE, jti=jti), load_private_key(keys / "first"))
        if jti in listed:
            with pytest.raises(NotAuthenticated, match="was revoked"):
                authority.authenticate(token, "", at(0))
        else:
            authority.authenticate(token, "", at(0))


@pytest.mark.parametrize("number", UNWRITABLE)
def test_a_number_is_one_word(number: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no token's number"):
        revoke(tmp_path / "revoked", number)


@pytest.mark.parametrize("own", ["", "north"])
@pytest.mark.parametrize("aud", ["", "north", "south"])
def test_a_token_is_good_in_the_network_that_it_names(keys: Path, own: str, aud: str) -> None:
    key = load_private_key(keys / "first")
    authority = TokenAuthority(keys, network=own)
    client = sign(msgspec.structs.replace(ALICE, aud=aud), key)
    broker = BoundToken(sign(msgspec.structs.replace(NORTH, aud=aud), key), OWN)
    ways: tuple[Callable[[], Principal], ...] = (
        lambda: authority.authenticate(client, "", at(0)),
        lambda: authority.authenticate_broker(broker.token, at(0)),
        lambda: authority.verified(broker.token, b"said", broker.sign(b"said"), at(0)),
    )
    for way in ways:
        if own == aud:
            assert way().name
        else:
            with pytest.raises(NotAuthenticated, match=f"aud is '{aud}', .* is '{own}'; sign one"):
                way()


def test_keys_rotate_while_the_broker_runs(keys: Path) -> None:
    authority = TokenAuthority(keys)
    old = sign(ALICE, load_private_key(keys / "first"))
    assert authority.authenticate(old, "", at(0)).name == "alice"
    create_key(keys / "second")
    new = sign(ALICE, load_private_key(keys / "second"))
    with pytest.raises(NotAuthenticated, match="which is unknown"):
        authority.authenticate(new, "", at(LOOK_AGAIN_S / 2))
    for token in (old, new):
        assert authority.authenticate(token, "", at(LOOK_AGAIN_S)).name == "alice"
    (keys / "first.pub").unlink()
    with pytest.raises(NotAuthenticated, match="which is unknown"):
        authority.authenticate(old, "", at(2 * LOOK_AGAIN_S))


def test_a_key_that_is_half_written_changes_nothing(keys: Path) -> None:
    authority = TokenAuthority(keys)
    token = sign(ALICE, load_private_key(keys / "first"))
    (keys / "second.pub").write_text("-----BEGIN")
    assert authority.authenticate(token, "", at(LOOK_AGAIN_S)).name == "alice"
    with pytest.raises(InvalidInput, match="holds no public key"):
        TokenAuthority(keys)


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        create_key(tmp_path / "key")
    finally:
        os.umask(before)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600


# --- brokers ---


OWN = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
NORTH = Claims(
    "north",
    "n1",
    iat=100,
    exp=200,
    broker=public_key_text(OWN.public_key()),
    allow_subscribe="TRUE",
)


def authority_of(directory: Path) -> tuple[TokenAuthority, Ed25519PrivateKey]:
    (directory / "revoked").touch()
    authority = TokenAuthority(directory / "first.pub", revoked=directory / "revoked")
    return authority, load_private_key(directory / "first")


def test_a_bound_token_is_a_brokers_and_no_clients(keys: Path) -> None:
    authority, key = authority_of(keys)
    token = sign(NORTH, key)
    principal = authority.authenticate_broker(token, at(0.0))
    assert (principal.name, principal.key) == ("north", NORTH.broker)
    with pytest.raises(NotAuthenticated, match="no client's"):
        authority.authenticate(token, "", at(0.0))
    with pytest.raises(NotAuthenticated, match=r"'alice' may not be a broker; .*--broker-key"):
        authority.authenticate_broker(sign(ALICE, key), at(0.0))
    with pytest.raises(NotAuthenticated, match="expired"):
        authority.authenticate_broker(token, at(0.0, 200))


def test_what_its_key_has_signed_is_verified_also_after_its_time(keys: Path) -> None:
    authority, key = authority_of(keys)
    bound = BoundToken(sign(NORTH, key), OWN)
    signed = bound.sign(b"said")
    for wall_s in (-1_000, 150, 10_000):
        found = authority.verified(bound.token, b"said", signed, at(0.0, wall_s))
        assert found.name == "north"
    for data, signature in ((b"other", signed), (b"said", b""), (b"said", signed[:-1] + b"x")):
        with pytest.raises(NotAuthenticated, match="not by the key of the broker 'north'"):
            authority.verified(bound.token, data, signature, at(0.0))
    with pytest.raises(NotAuthenticated, match="may not be a broker"):
        authority.verified(sign(ALICE, key), b"said", signed, at(0.0))
    with pytest.raises(NotAuthenticated, match="is unknown"):
        authority.verified(sign(NORTH, KEY), b"said", signed, at(0.0))
    revoke(keys / "revoked", "n1")
    with pytest.raises(NotAuthenticated, match="was revoked"):
        authority.verified(bound.token, b"said", signed, at(LOOK_AGAIN_S + 1))


def test_a_key_that_is_taken_away_vouches_for_nobody(keys: Path) -> None:
    create_key(keys / "second")
    authority = TokenAuthority(keys)
    bound = BoundToken(sign(NORTH, load_private_key(keys / "second")), OWN)
    assert authority.verified(bound.token, b"said", bound.sign(b"said"), at(0.0)).key
    (keys / "second.pub").unlink()
    with pytest.raises(NotAuthenticated, match="is unknown"):
        authority.verified(bound.token, b"said", bound.sign(b"said"), at(LOOK_AGAIN_S + 1))


@pytest.mark.parametrize(("maximum", "kept"), [(1, 1), (2, 2), (3, 2)])
def test_verified_tokens_are_remembered_within_bounds(
    keys: Path, maximum: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_BOUND", maximum)
    authority, key = authority_of(keys)
    for number in range(2):
        claims = msgspec.structs.replace(NORTH, jti=str(number))
        bound = BoundToken(sign(claims, key), OWN)
        assert authority.verified(bound.token, b"x", bound.sign(b"x"), at(0.0)).name == "north"
    assert len(authority._bound) == kept


@pytest.mark.parametrize("text", ["x", "A" * 42, "A" * 44, "é" * 43, "=" * 43])
def test_a_claim_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"the claim broker is .*32 bytes in base64url"):
        sign(msgspec.structs.replace(NORTH, broker=text), KEY)


def test_a_bound_token_needs_the_key_that_it_is_bound_to() -> None:
    with pytest.raises(InvalidInput, match="bound to another key"):
        BoundToken(sign(NORTH, KEY), KEY)
    with pytest.raises(InvalidInput, match=r"palio token create alice --broker-key alice\.pub"):
        BoundToken(TOKEN, OWN)
