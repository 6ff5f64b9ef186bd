"""Keys are read as people write them, and streams have names that only who has the key makes."""

from __future__ import annotations

import base64

import pytest

from palio.errors import InvalidInput
from palio.protocol.group_keys import STREAM_BYTES, UNSHARED, Ciphers, GroupKey

SECRET = bytes(range(224, 256))


@pytest.mark.parametrize(
    "text",
    [
        SECRET.hex(),
        SECRET.hex().upper() + "\n",
        base64.b64encode(SECRET).decode() + "\n",
        base64.urlsafe_b64encode(SECRET).decode(),
        base64.urlsafe_b64encode(SECRET).decode().rstrip("="),
    ],
)
def test_a_key_is_read_in_hexadecimal_or_base64(text: str) -> None:
    assert GroupKey.read(text).secret == SECRET


@pytest.mark.parametrize("text", ["", "secret", SECRET.hex()[2:], "zz" * 32, "ä" * 64, "00" * 33])
def test_what_is_no_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(InvalidInput, match="openssl") as caught:
        GroupKey.read(text)
    assert len(text) < 6 or text not in str(caught.value)


@pytest.mark.parametrize("size", [31, 32, 33])
def test_a_secret_has_32_bytes(size: int) -> None:
    if size == 32:
        GroupKey(bytes(size))
    else:
        with pytest.raises(InvalidInput, match="32 bytes"):
            GroupKey(bytes(size))


def test_a_key_is_not_shown() -> None:
    assert SECRET.hex() not in repr(GroupKey(SECRET))
    assert str(SECRET) not in repr(GroupKey(SECRET))


def test_each_salt_sender_life_and_plan_has_its_own_stream_and_key() -> None:
    ciphers = Ciphers(GroupKey(SECRET))
    streams = {
        ciphers.stream(bytes([salt]) * 16, source, incarnation, plan)
        for salt in (1, 2)
        for source in ("b1", "b2")
        for incarnation in (1, 2)
        for plan in (1, 2)
    }
    assert len(streams) == 16
    sealed = {ciphers.cipher(each).encrypt(bytes(12), b"x", None) for each in streams}
    assert len(sealed) == 16


def test_no_stream_of_another_key_is_known_nor_one_that_was_altered() -> None:
    ours, theirs = Ciphers(GroupKey(SECRET)), Ciphers(UNSHARED)
    stream = ours.stream(bytes(16), "b1", 1, 1)
    assert ours.knows(stream)
    assert not theirs.knows(stream)
    for place in range(STREAM_BYTES):
        altered = bytearray(stream)
        altered[place] ^= 1
        assert not ours.knows(bytes(altered))
