"""The hashes of constraints.txt, made anew from the index that pip is configured for.

python -m tests.pins     keep the versions; write the hashes of their files

pip names them on no command line, so this asks the part of it that looks for files.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from pip._internal.commands.download import DownloadCommand
from pip._internal.index.package_finder import PackageFinder
from pip._internal.models.target_python import TargetPython
from pip._vendor.packaging.tags import Tag

CONSTRAINTS: Final = Path(__file__).parents[1] / "constraints.txt"

PYTHONS: Final = ((3, 11), (3, 12), (3, 13), (3, 14))

PLATFORMS: Final = [
    *("macosx_26_0_arm64", "macosx_26_0_x86_64"),  # and every earlier one
    *(
        f"manylinux{glibc}_{machine}"
        for glibc in ("1", "2010", "2014", *(f"_2_{minor}" for minor in range(5, 41)))
        for machine in ("x86_64", "aarch64")
    ),
]


class Target(TargetPython):
    """A version of Python, on all platforms at once."""

    @cached_property
    def tags(self) -> frozenset[Tag]:
        return frozenset(super().get_tags())

    def get_tags(self) -> list[Tag]:
        """In no order, so that each is looked up at once: there are thousands."""
        return self.tags  # type: ignore[return-value]  # for `in` alone


def finders() -> Iterator[PackageFinder]:
    """How pip sees the index from each version of Python."""
    command = DownloadCommand("download", "")
    with command.main_context():
        options, _ = command.parse_args([])
        session = command.get_default_session(options)
        for version in PYTHONS:
            target = Target(platforms=PLATFORMS, py_version_info=version)
            yield command._build_package_finder(options, session, target_python=target)


def hashes_of(name: str, version: str, finders: list[PackageFinder]) -> list[str]:
    """Those of a release's wheels, and where some Python has none of its source."""
    hashes = set()
    for finder in finders:
        found = finder.find_all_candidates(name)
        links = [each.link for each in found if str(each.version) == version]
        for link in [link for link in links if link.is_wheel] or links:
            if link.hash_name != "sha256":
                raise SystemExit(f"{link.filename}: the index names no sha256 of it")
            hashes.add(f"--hash=sha256:{link.hash}")
    if not hashes:
        raise SystemExit(f"the index has no {name}=={version}; take another version")
    return sorted(hashes)


def main() -> None:
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    written = [line for line in lines if line.startswith("#")]
    seen = list(finders())
    pins = [line.rstrip(" \\").split("==") for line in lines if line[:1].isalpha()]
    for name, version in sorted(pins):
        hashes = hashes_of(name, version, seen)
        written.append(" \\\n    ".join([f"{name}=={version}", *hashes]))
    CONSTRAINTS.write_text("\n".join(written) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
