from __future__ import annotations

import pytest

from palio.matching import warming
from palio.matching.kernels import registry
from palio.spark import daemon


@pytest.mark.parametrize("is_there", [False, True])
def test_what_was_never_compiled_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Spark waits for this process; compiling takes a minute."""
    asked: list[bool] = []
    monkeypatch.setattr(warming, "warm", lambda: asked.append(True))
    monkeypatch.setattr(registry, "are_on_disk", lambda: is_there)
    assert daemon.prepare() is is_there
    assert asked == [True] * is_there
