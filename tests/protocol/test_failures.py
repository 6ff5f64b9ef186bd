"""Errors that travel: each comes back as what it was."""

from __future__ import annotations

import pytest

from palio import errors
from palio.protocol.failures import error_of
from palio.protocol.messages import Failure


@pytest.mark.parametrize("kind", [name for name in errors.__all__ if name != "PalioError"])
def test_an_error_comes_back_as_what_it_was(kind: str) -> None:
    error = error_of(Failure(kind, "in words", {"limit": "MAX"}))
    assert type(error).__name__ == kind
    assert str(error) == "in words"
    assert vars(error)["limit"] == "MAX"


@pytest.mark.parametrize("kind", ["Exception", "annotations", "", "NoSuchError"])
def test_an_unknown_error_is_one_of_ours(kind: str) -> None:
    assert type(error_of(Failure(kind, "in words"))) is errors.PalioError
