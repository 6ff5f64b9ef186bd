"""`palio keys`: make and list the keys that sign and verify tokens."""

from __future__ import annotations

from pathlib import Path

from palio.cli.reporting import show
from palio.server import tokens

__all__ = ["create_key", "list_keys"]


def create_key(path: Path, *, as_json: bool = False) -> int:
    """Make a pair of keys."""
    number = tokens.create_key(path)
    public = f"{path}.pub"
    if as_json:
        show({"id": number, "private": str(path), "public": public})
    else:
        show(f"key {number}\n  {path}: signs tokens; keep it\n  {public}: give it to brokers")
    return 0


def list_keys(path: Path, *, as_json: bool = False) -> int:
    """Say which public keys a file or a directory holds."""
    numbers = sorted(tokens.load_public_keys(path))
    show({"keys": numbers} if as_json else "\n".join(numbers) or f"no key in {path}")
    return 0 if numbers else 1
