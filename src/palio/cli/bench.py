"""`palio bench`: run a benchmark of the checkout that this Palio is installed from.

Benchmarks are programs beside the package, not a part of it; an installation from a wheel has none,
and is told where to get them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from palio.errors import InvalidInput

__all__ = ["bench", "is_available"]

_PACKAGE: Final = Path(__file__).parents[1]


def is_available(package: Path = _PACKAGE) -> bool:
    """Whether there is a checkout with benchmarks around a package."""
    return (package.parent.parent / "benchmarks").is_dir()


def bench(name: str, options: Sequence[str], *, package: Path = _PACKAGE) -> int:
    """Run `benchmarks/NAME.py` of the checkout around a package; its exit status."""
    checkout = package.parent.parent
    if not (checkout / "benchmarks" / f"{name}.py").is_file():
        raise InvalidInput(
            f"benchmarks are not part of the installed package, and {checkout} has none; "
            "get the source and install it with: pip install --editable '.[dev]'"
        )
    program = [sys.executable, "-m", f"benchmarks.{name}", *options]
    sys.stdout.flush()
    return subprocess.run(program, cwd=checkout, check=False).returncode
