"""Tests mirror the sources: `src/palio/R/x.py` has `tests/R/test_x.py`, or says here where else.

Those of `studies/palio_studies` are in `tests/studies`: they share Palio's fixtures and helpers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
SOURCES: Final = TESTS.parent / "src" / "palio"
STUDIES: Final = TESTS.parent / "studies" / "palio_studies"

ENGINES: Final = "matching/test_engines.py"
"""All engines and plans agree with the plain one on generated filters and events."""

ELSEWHERE: Final[Mapping[str, str]] = {
    # a line or two, or only names: what uses them is tested
    "__main__.py": "cli/test_main.py",
    "multicast/flow_paths.py": "multicast/test_outflows.py",
    "node/effects.py": "node/test_node.py",
    "node/limits.py": "node/test_rate_limiters.py",
    "node/operations.py": "node/test_memory.py",
    "node/settings.py": "server/test_settings.py",
    "routing/flood_tables.py": "routing/test_flooded.py",
    "routing/messages.py": "protocol/test_wire.py",
    "routing/patterns/delegation.py": "routing/patterns/test_router.py",
    "routing/patterns/reading.py": "routing/patterns/test_router.py",
    "server/limits.py": "server/test_run.py",
    "studies/command.py": "cli/test_study.py",
    "studies/simulate.py": "cli/test_simulate.py",
    "studies/names.py": "studies/test_study.py",
    "matching/protocol.py": ENGINES,
    # commands: each by running it, with those that share a broker
    "cli/connecting.py": "cli/test_pub.py",
    "cli/plan_traffic.py": "cli/test_plan.py",
    "cli/sub.py": "cli/test_pub.py",
    "cli/top.py": "cli/test_topology.py",
    "cli/replay.py": "cli/test_archive.py",
    "testing/fleet.py": "server/test_kills.py",
    # compiled code: by the engines that run it, compiled and not
    "matching/kernels/": "matching/kernels/test_kernels.py",
    "matching/compile/ranges.py": ENGINES,
    "matching/compile/terms.py": ENGINES,
    "matching/layers.py": "matching/test_snapshots.py",
    "matching/building.py": ENGINES,
    "matching/compiled.py": ENGINES,
    # what filters are made of: by filters
    "model/conjunctions.py": "model/test_relations.py",
    # the client's end: by clients of real and of simulated brokers
    "client/assembling.py": "client/test_durable_patterns.py",
    "client/answers.py": "client/test_connection.py",
    "client/latest.py": "node/test_latest.py",
    "client/admin.py": "client/test_connection.py",
    "client/upstream.py": "client/test_bus.py",
    # the simulation: it is what storms run on, and they find planted faults
    "simulation/disks.py": "node/test_faults.py",
    "simulation/member.py": "campaign/test_plays.py",
    # two modules that are one thing to whoever calls them
    "model/parameters.py": "client/test_bus.py",
    "server/keyfiles.py": "server/test_tokens.py",
}
"""Sources, or whole folders, whose tests have another name, with that."""

PATHS: Final = sorted(
    f"{prefix}{path.relative_to(home).as_posix()}"
    for prefix, home in (("", SOURCES), ("studies/", STUDIES))
    for path in home.rglob("*.py")
    if path.name != "__init__.py"
)


def mirrored(source: str) -> Path:
    """The file of its tests."""
    path = Path(source)
    return TESTS / path.with_name(f"test_{path.name}")


def entry_of(source: str) -> str | None:
    """The line of the list above that speaks of a source."""
    folders = [f"{each.as_posix()}/" for each in Path(source).parents]
    return next((each for each in (source, *folders) if each in ELSEWHERE), None)


def test_modules_have_tests_of_their_names() -> None:
    for source in PATHS:
        entry = entry_of(source)
        found = mirrored(source).exists()
        assert found or entry, f"no {mirrored(source).relative_to(TESTS.parent)}"
        assert not found or entry != source, f"{source} has tests of its name: unlist it"


def test_the_modules_of_the_list_and_their_tests_are_there() -> None:
    for entry, tests in ELSEWHERE.items():
        studied = entry.startswith("studies/")
        source = STUDIES / entry.removeprefix("studies/") if studied else SOURCES / entry
        assert source.exists(), f"take {entry} out of the list"
        assert (TESTS / tests).exists(), tests
