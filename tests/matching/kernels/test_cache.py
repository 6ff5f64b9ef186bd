"""The mark of whole caches, and who compiles: threads here, processes in tests/cli."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from palio import files
from palio.matching import store, warming
from palio.matching.index import Index
from palio.matching.kernels import jit, registry
from palio.matching.kernels.cache import LOCK, KernelCache
from palio.model import to_batch
from tests.matching.test_index import parsed

HOLDER = """
import sys
from pathlib import Path
from palio import files
with files.held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def cache(directory: Path | None, mark: str = "these sources") -> KernelCache:
    return KernelCache("matching", directory, mark)


def test_who_has_compiled_everything_leaves_a_mark(tmp_path: Path) -> None:
    assert not cache(tmp_path).is_whole()
    assert cache(tmp_path).load(lambda: 7) == 7
    assert cache(tmp_path).is_whole()
    assert not cache(tmp_path, "other sources").is_whole()
    assert not KernelCache("routing", tmp_path, "these sources").is_whole()


def test_compiling_that_failed_leaves_no_mark_and_no_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        cache(tmp_path).load(lambda: 1 // 0)
    assert not cache(tmp_path).is_whole()
    assert cache(tmp_path).load(lambda: 7, wait=False) == 7


def test_one_compiles_and_the_others_load_all_at_once(tmp_path: Path) -> None:
    """One of five threads finds the cache empty; the others then load beside each other."""
    others = 4
    loading = threading.Barrier(others)
    found: list[str] = []

    def everything() -> None:
        if cache(tmp_path).is_whole():
            loading.wait(30)
            found.append("loaded")
        else:
            found.append("compiled")

    threads = [
        threading.Thread(target=cache(tmp_path).load, args=(everything,)) for _ in range(others + 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == ["compiled"] + ["loaded"] * others


def test_who_shall_not_wait_does_not(tmp_path: Path) -> None:
    asked: list[bool] = []
    with files.held(tmp_path / LOCK):
        assert cache(tmp_path).load(lambda: asked.append(True), wait=False) is None
    assert asked == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_dies_while_it_compiles_holds_up_nobody(tmp_path: Path, number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / LOCK)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert cache(tmp_path).load(lambda: 7, wait=False) is None
        process.send_signal(number)
        assert cache(tmp_path).load(lambda: 7) == 7


def held_for_ever(_path: Path, *, wait: bool) -> object:
    raise OSError(f"no locks available, {wait}")


@pytest.mark.parametrize("spoil", ["lock", "mark", "system", "nowhere"])
def test_where_no_file_can_be_kept_everybody_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: str
) -> None:
    match spoil:
        case "lock":
            (tmp_path / LOCK).symlink_to(tmp_path / "elsewhere")
        case "mark":
            (tmp_path / "palio-matching.compiled").mkdir()
        case "system":
            monkeypatch.setattr(files, "held", held_for_ever)
    one = cache(None if spoil == "nowhere" else tmp_path)
    assert one.load(lambda: 7) == 7
    assert one.load(lambda: 8, wait=False) == 8
    assert not one.is_whole()
    assert not (tmp_path / "elsewhere").exists()


def test_the_mark_depends_on_the_sources_and_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from palio.matching.kernels import arrow

    class Module:
        __name__ = "kernels"
        __file__ = str(tmp_path / "kernels.py")

    def is_whole() -> bool:
        return KernelCache.of("matching", [Module], arrow.code_batch).is_whole()  # type: ignore[list-item]  # as much of a module as is looked at

    monkeypatch.setattr(jit, "cache_path", lambda _: tmp_path)
    (tmp_path / "kernels.py").write_text("x = 1")
    KernelCache.of("matching", [Module], arrow.code_batch).load(int)  # type: ignore[list-item]  # likewise
    assert is_whole()
    (tmp_path / "kernels.py").write_text("x = 2")
    assert not is_whole()
    (tmp_path / "kernels.py").write_text("x = 1")
    assert is_whole()
    monkeypatch.setattr(jit, "target", lambda: "another processor")
    assert not is_whole()
    (tmp_path / "kernels.py").unlink()
    assert not is_whole()


def test_an_index_goes_on_in_python_while_another_process_compiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = warming.warm()
    answers: list[registry.Kernels | None] = [None, loaded]
    monkeypatch.setattr(registry, "_loaded", [])
    monkeypatch.setattr(warming, "warm_unless_busy", lambda: answers.pop(0))
    monkeypatch.setattr(warming, "FALLBACK_PAIRS", 7)
    monkeypatch.setattr(store, "MERGE_ROWS", 4)
    index = Index()
    for key in range(8):
        index.add(key, parsed(f"x >= {key % 2}"))
    event = to_batch({"x": 1})
    assert index.match(event).keys.tolist() == list(range(8))
    assert len(answers) == 1, "it was asked once"
    assert index.match(event).keys.tolist() == list(range(8))
    assert answers == [], "and again after as many pairs"


@pytest.mark.parametrize("is_busy", [False, True])
def test_bulk_does_not_wait_for_another_process(
    monkeypatch: pytest.MonkeyPatch, is_busy: bool
) -> None:
    loaded = warming.warm()
    monkeypatch.setattr(registry, "_loaded", [])
    monkeypatch.setattr(warming, "warm_unless_busy", lambda: None if is_busy else loaded)
    monkeypatch.setattr(warming, "BULK_FILTERS", 4)
    index = Index()
    index.add_many(np.arange(10), parsed("x = :y"), {"y": list(range(10))})
    assert index.match(to_batch({"x": 3})).keys.tolist() == [3]


def test_without_a_directory_to_write_to_kernels_are_compiled_all_the_same() -> None:
    """A function typed in at a prompt is one that numba finds no place for."""
    program = (
        "from palio.matching.kernels.jit import cache_path, compiled, inlined\n"
        "@inlined\ndef one(): return 1\n"
        "@compiled\ndef two(): return one() + 1\n"
        "assert two() == 2 and cache_path(two) is None\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 0


class Gone:
    """A type that later sources have no more, or elsewhere."""


def test_lists_of_functions_that_name_types_which_are_gone_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba fails where it reads such a list: nobody could load kernels after an upgrade."""
    content = {"of-today": (1, int), "of-yesterday": (1, Gone)}
    for name, each in content.items():
        (tmp_path / f"{name}.nbi").write_bytes(pickle.dumps("0.60") + pickle.dumps(each))
    (tmp_path / "cut-off.nbi").write_bytes(pickle.dumps("0.60"))
    monkeypatch.delattr(sys.modules[__name__], "Gone")
    (tmp_path / "palio-matching.compiled").write_text("these sources\nanother processor")
    assert cache(tmp_path).load(lambda: 7) == 7
    assert [path.name for path in tmp_path.glob("*.nbi")] == ["of-today.nbi"]


def test_what_was_compiled_of_other_sources_is_removed_before_anything_is_loaded(
    tmp_path: Path,
) -> None:
    """numba would load it: it compares the file of a function, and not those copied into it."""
    left: list[list[str]] = []

    def everything() -> None:
        left.append([path.name for path in tmp_path.glob("*.nbi")])
        (tmp_path / "kernel.nbi").write_bytes(pickle.dumps("0.60") + pickle.dumps({}))
        if len(left) == 2:
            raise KeyboardInterrupt  # the process ends before it has compiled all

    for sources in ("these", "others", "others"):
        with suppress(KeyboardInterrupt):
            cache(tmp_path, sources).load(everything)
    assert left == [[], [], ["kernel.nbi"]]
    KernelCache("matching", tmp_path, "others", "another processor").load(everything)
    assert left[3:] == [["kernel.nbi"]]


def test_the_mark_depends_on_what_all_kernels_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from palio.matching.kernels import arrow, records

    monkeypatch.setattr(jit, "cache_path", lambda _: tmp_path)
    KernelCache.of("matching", [arrow], arrow.code_batch).load(int)
    assert KernelCache.of("matching", [arrow], arrow.code_batch).is_whole()
    for module in (jit, records):
        with monkeypatch.context() as patched:
            (tmp_path / "changed.py").write_text("x = 1")
            patched.setattr(module, "__file__", str(tmp_path / "changed.py"))
            assert not KernelCache.of("matching", [arrow], arrow.code_batch).is_whole()
