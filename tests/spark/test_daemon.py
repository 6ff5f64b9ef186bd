from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from palio.matching import kernels
from palio.spark import daemon


def test_what_was_never_compiled_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark waits for this process; compiling takes a minute."""
    asked: list[bool] = []
    monkeypatch.setattr(kernels, "warm", lambda: asked.append(True))
    monkeypatch.setattr(daemon, "_is_on_disk", lambda _: False)
    assert not daemon.prepare()
    assert asked == []
    monkeypatch.setattr(daemon, "_is_on_disk", lambda _: True)
    assert daemon.prepare()
    assert asked == [True]


def test_a_kernel_is_on_disk_when_its_cache_has_an_index(tmp_path: Path) -> None:
    def kernel() -> None: ...

    line = kernel.__code__.co_firstlineno
    dispatcher = SimpleNamespace(stats=SimpleNamespace(cache_path=str(tmp_path)), py_func=kernel)
    assert not daemon._is_on_disk(dispatcher)
    (tmp_path / f"module.kernel-{line + 1}.py311.nbi").touch()
    assert not daemon._is_on_disk(dispatcher)
    (tmp_path / f"module.kernel-{line}.py311.nbi").touch()
    assert daemon._is_on_disk(dispatcher)


def test_numba_names_its_files_so() -> None:
    from palio.matching import kernels_arrow

    kernels.warm()
    assert daemon._is_on_disk(kernels_arrow.code_batch)
