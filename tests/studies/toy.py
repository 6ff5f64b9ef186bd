"""A study of nothing, for tests: a walk whose length depends on its parameters and seed alone.

    python toy.py HOME        sweeps it on one core into HOME, to be killed meanwhile

HOME/ledger gets a line as a run ends. Once it has `HELD_AT` lines, runs wait for HOME/go, and
HOME/held says which process waits.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from palio.simulation import Randomness
from palio_studies.names import Scale
from palio_studies.results import Results
from palio_studies.study import (
    Axis,
    Choice,
    Claim,
    Evidence,
    Experiment,
    Figure,
    Point,
    Row,
    Study,
    Table,
    with_seeds,
)

HELD_AT: Final = 3
SIZES: Final = {Scale.SMALL: (1, 2), Scale.PAPER: (1, 2, 5, 10), Scale.BEYOND: (1, 100)}


def walk(point: Point) -> list[Row]:
    """How far a walker comes, by two ways of walking."""
    if point.parameters["size"] == 13:
        raise RuntimeError("an unlucky size")
    random = Randomness(point.seed)
    steps = [random.uniform() for _ in range(int(point.parameters["size"]))]
    return [
        {"gait": "slow", "way": sum(steps), "pid": os.getpid()},
        {"gait": "fast", "way": sum(steps) * 2, "pid": os.getpid()},
    ]


def walk_held(point: Point) -> list[Row]:
    """...and be held up on the way, until that is allowed."""
    from tests.spark.cluster import await_that

    home, parent = Path(str(point.parameters["home"])), os.getppid()
    ledger = home / "ledger"

    def may_go_on() -> bool:
        if os.getppid() != parent:
            os._exit(1)  # an orphan: its driver was killed
        lines = ledger.read_text().count("\n") if ledger.exists() else 0
        if lines < HELD_AT or (home / "go").exists():
            return True
        (home / "holding").write_text(str(os.getpid()))
        (home / "holding").rename(home / "held")  # there with all that it says
        return False

    await_that(may_go_on, "a run may go on")
    rows = walk(point)
    with ledger.open("a") as file:
        file.write(f"{point.name}\n")
    return rows


def faster(results: Results) -> Evidence:
    """The claim that can be checked and holds."""
    ways = results.mean("walk", "way", by=["gait"])
    fast, slow = ways["fast",], ways["slow",]
    return Evidence(fast.value > slow.value, f"{fast} against {slow}")


def slower(results: Results) -> Evidence:
    """The claim that fails."""
    return Evidence(not faster(results).holds, faster(results).numbers)


def undecided(_: Results) -> Evidence:
    """The claim for which there are too few runs."""
    return Evidence(None, "too few runs")


def ways(results: Results) -> list[list[str]]:
    """Steps by gait."""
    lines = [[gait, "100"] for gait in results.values("walk", "gait")]
    return [["gait", "steps"], *lines]


def study(sizes: tuple[int, ...] = (), home: str = "") -> Study:
    """The study; with `home` one whose runs are held up."""
    extra = {"home": home} if home else {}
    experiment = Experiment(
        "walk",
        walk_held if home else walk,
        lambda scale: with_seeds(
            "walk", [{"size": size, **extra} for size in sizes or SIZES[scale]], 3
        ),
        timed=frozenset({"pid"}),
        weight=lambda point: float(point.parameters["size"]),
    )
    figures = (
        Figure(
            "way",
            "Figure 1: the way",
            "walk",
            Axis("size", "steps", log=True),
            Axis("way", "way, m"),
            lines=("gait",),
            names={"slow": "at leisure"},
            caption="Both grow.",
        ),
        Figure(
            "gaits",
            "Figure 2: gaits",
            "walk",
            Axis("gait", "gait"),
            Axis("way", "way, m"),
            panels="size",
            bars=True,
        ),
        Figure("none", "Figure 3: never run", "flight", Axis("a", "a"), Axis("b", "b")),
    )
    claims = (
        Claim("faster", "Fast is faster | than slow.", "more", faster),
        Claim("slower", "Slow is faster.", "more", slower, "It is not.", "on a Monday"),
        Claim("undecided", "Nobody knows.", "-", undecided),
    )
    choices = (Choice("steps", "1 to 100", "", "none was given"),)
    return Study(
        "toy",
        "Walking",
        "N. Body, 1999",
        "They walk.",
        choices,
        (experiment,),
        figures,
        claims,
        (Table("ways", "Table 1: ways", ways),),
    )


if __name__ == "__main__":
    import palio.spark
    from palio_studies.sweeping import sweep
    from tests.spark.cluster import QUICK_JAVA

    given = Path(sys.argv[1])
    running = palio.spark.session("local[1]", spark_driver_extraJavaOptions=QUICK_JAVA)
    sweep(study(home=str(given)), Scale.PAPER, given / "out", running)
    palio.spark.stop(running)
