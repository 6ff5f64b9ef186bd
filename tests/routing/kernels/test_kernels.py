"""When compiled code is used."""

from __future__ import annotations

import pytest

from palio.matching.kernels import registry
from palio.routing import kernels


def test_kernels_are_ready_once_somebody_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_loaded", [])
    assert kernels.ready() is None
    found = kernels.warm()
    assert kernels.ready() is found
    assert kernels.warm() is found
    assert registry.ready() is not None
