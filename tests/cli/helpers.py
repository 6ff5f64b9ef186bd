"""Running the command inside the test's own process."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from palio.cli.main import run


class Outcome(NamedTuple):
    """How a run of the command ended."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its output as JSON; there is one document and nothing else."""
        assert self.err == ""
        return json.loads(self.out)


Palio = Callable[..., Outcome]


class Terminal(io.TextIOWrapper):
    """Standard input that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def runner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Palio:
    def palio(*arguments: str, stdin: str | bytes = b"", terminal: bool = False) -> Outcome:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        kind = Terminal if terminal else io.TextIOWrapper
        monkeypatch.setattr(sys, "stdin", kind(io.BytesIO(raw)))
        with pytest.raises(SystemExit) as end:
            run(arguments)
        assert isinstance(end.value.code, int)
        return Outcome(end.value.code, *capsys.readouterr())

    return palio
