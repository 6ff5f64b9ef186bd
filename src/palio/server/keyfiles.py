"""Keys that sign and verify tokens: pairs of Ed25519, in files of PEM."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from palio import files
from palio.errors import InvalidInput


def key_id(key: Ed25519PublicKey) -> str:
    """The name by which a token refers to its signing key: a hash of the public key."""
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
    return {key_id(key): key for key in map(_public_key, key_files(path))}


def key_files(path: Path) -> list[Path]:
    """The files that `load_public_keys` reads."""
    return sorted(path.glob("*.pub")) if path.is_dir() else [path]


def _public_key(path: Path) -> Ed25519PublicKey:
    text = _read(path)
    try:
        key = serialization.load_pem_public_key(text)
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


def public_key_of(text: str) -> Ed25519PublicKey:
    """The public key that the claim `broker` names."""
    try:
        raw = base64.b64decode(f"{text}=", altchars=b"-_", validate=True)
        return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:  # its alphabet or its length
        raise InvalidInput(
            f"the claim broker is {text!r:.60}; it is an Ed25519 public key: 32 bytes in base64url"
        ) from None
