"""Wrap numba: compiled functions that keep their Python types, and machine instructions.

Only the modules of `kernels` import this module, and those are imported when a first
engine is ready to use compiled code: importing numba takes half a second, compiling takes many
(`registry.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from llvmlite import binding as llvm  # type: ignore[import-untyped]  # llvmlite ships no types
from numba.core import config
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """A kernel: machine code that holds no lock of the interpreter, kept on disk between runs."""
    return _kept(function)


def inlined(function: Function) -> Function:
    """A piece of kernels that is copied into each place that calls it."""
    return _kept(function, inline="always")


def _kept(function: Function, **options: Any) -> Function:
    """Compiled when first called, and kept on disk where there is a place for it."""
    try:
        kernel: Any = numba.njit(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # numba found no directory that it may write to
        kernel = numba.njit(nogil=True, **options)(function)
    return kernel  # type: ignore[no-any-return]  # a dispatcher is called like its function


def instruction(function: Callable[..., Any]) -> Any:
    """A function of kernels whose instructions are written by hand."""
    return intrinsic(function)


def cache_path(kernel: Any) -> Path | None:
    """The directory in which a kernel is kept on disk; None if it is not."""
    path = getattr(getattr(kernel, "stats", None), "cache_path", None)
    return None if path is None else Path(path)


def target() -> str:
    """Name what decides, beside the sources, whether a kernel on disk is of use here."""
    processor = (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    asked = (vars(config).get(name) for name in ("CPU_NAME", "CPU_FEATURES"))
    return repr((sys.implementation.cache_tag, numba.__version__, *processor, *asked))
