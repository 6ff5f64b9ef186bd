from __future__ import annotations

import pytest

from tests.cli.helpers import Palio, runner


@pytest.fixture
def palio(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Palio:
    """The command: `palio("test", "a = 1", stdin='{"a": 1}')`."""
    return runner(capsys, monkeypatch)


@pytest.fixture
def run(palio: Palio) -> Palio:
    """The command, under a name that leaves `palio` to the package."""
    return palio
