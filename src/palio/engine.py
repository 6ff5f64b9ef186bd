"""NumPy and pyarrow, imported when first used: who exchanges single events needs neither.

`palio` alone installs neither; `palio[engine]` brings them, and numba, for batches, archives and
matching at full speed.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from palio.errors import InvalidConfiguration

__all__ = ["is_installed", "np", "npt", "pa", "require"]


@cache
def is_installed() -> bool:
    """Return whether the packages of `palio[engine]` are there; none of them is imported.

    >>> is_installed()
    True
    """
    return all(find_spec(name) is not None for name in ("numba", "numpy", "pyarrow"))


def require(use: str) -> None:
    """Refuse (`InvalidConfiguration`) what only batches can do, where there are none.

    >>> require("receive_batch")
    """
    if not is_installed():
        raise InvalidConfiguration(f"{use} needs pyarrow; pip install 'palio[engine]'")


class _Deferred(ModuleType):
    """A module that is imported with the first of its names that is used."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(import_module(self.__name__), name)
        except ModuleNotFoundError as error:
            if error.name != self.__name__.partition(".")[0]:
                raise
            raise InvalidConfiguration(
                f"this needs {error.name}; pip install 'palio[engine]'"
            ) from None
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
else:
    np, npt, pa = map(_Deferred, ("numpy", "numpy.typing", "pyarrow"))
