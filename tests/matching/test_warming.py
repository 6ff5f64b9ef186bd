"""All kernels are called before anybody needs one, and are on disk from then on."""

from __future__ import annotations

import pytest

from palio.matching import warming
from palio.matching.kernels import registry


def test_kernels_that_are_loaded_are_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    warming.warm()
    monkeypatch.setattr(registry, "_loaded", [])
    assert registry.are_on_disk()


def test_warming_tries_every_kernel_and_tells_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is left for a caller to compile: each is called at least once."""
    monkeypatch.setattr(registry, "_loaded", [])
    reports: list[tuple[int, int]] = []
    warming.warm(lambda done, of: reports.append((done, of)))
    assert reports == [(done, len(reports)) for done in range(1, len(reports) + 1)]
    assert len(reports) == sum(map(callable, vars(registry.Kernels()).values()))
