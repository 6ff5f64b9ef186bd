"""What a study is: experiments to run, figures to draw, and a paper's claims to check.

All of it is plain values, so that the same study can be run here or on a cluster, drawn again years
later from its files, and read without running anything. `sweeping` runs a study, `results` reads
what came of it, `drawing` and `report` show it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from importlib import import_module
from itertools import product
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from palio.errors import InvalidInput
from palio_studies.names import STUDIES, Row, Scale, Value

if TYPE_CHECKING:
    from palio_studies.results import Results

__all__ = [
    "SEEDS",
    "Axis",
    "Choice",
    "Claim",
    "Evidence",
    "Experiment",
    "Figure",
    "Point",
    "Row",
    "Study",
    "Table",
    "TooLittle",
    "Value",
    "grid",
    "points_at",
    "points_of",
    "study_named",
    "with_seeds",
]


class Point(msgspec.Struct, frozen=True):
    """One run of an experiment: its parameters and its seed, and nothing else that could matter.

    >>> Point("costs", {"parties": 10, "routing": "as"}, 1).name
    'costs-5a74e20b50c54a2f'
    """

    experiment: str
    parameters: Mapping[str, Value]
    seed: int

    @property
    def name(self) -> str:
        """The same in every process and order of parameters: the name of the file of its rows."""
        order = sorted(self.parameters.items())
        digest = blake2b(msgspec.json.encode([order, self.seed]), digest_size=8)
        return f"{self.experiment}-{digest.hexdigest()}"


class Choice(msgspec.Struct, frozen=True):
    """A number of the scenario: what the paper says of it, and what is taken here and why.

    `paper` is empty where the paper lost it or never gave it.
    """

    name: str
    taken: str
    paper: str
    why: str = ""


class Experiment(msgspec.Struct, frozen=True):
    """Runs of one kind. `run` is a function of a module, so that workers can import it; it gives
    a row or several, without the parameters and the seed, which are added to each.
    """

    name: str
    run: Callable[[Point], list[Row]]
    points: Callable[[Scale], Iterable[Point]]
    timed: frozenset[str] = frozenset()
    """Columns that are times of this machine; all others are equal wherever a point is run."""
    weight: Callable[[Point], float] = lambda _: 1.0
    """How long a run takes beside others: the long ones begin first."""


class Axis(msgspec.Struct, frozen=True):
    """A column and how it is drawn."""

    column: str
    label: str
    """With its unit: "latency, ms"."""
    log: bool = False


class Figure(msgspec.Struct, frozen=True):
    """A picture of some rows: `y` over `x`, a line for each value of `lines`, a panel for each
    value of `panels`. What else differs must be picked by `where`; seeds become error bars.
    """

    name: str
    title: str
    """With the paper's own number of it, if it has one: "Figure 14: total cost"."""
    experiment: str
    x: Axis
    y: Axis
    lines: tuple[str, ...] = ()
    panels: str = ""
    where: Mapping[str, Value] = msgspec.field(default_factory=dict)
    names: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What values of `lines` and `panels` are called in the legend, where not by themselves."""
    caption: str = ""
    """What a reader should see in it."""
    bars: bool = False
    """Bars instead of lines: for an `x` that is a name."""
    to: tuple[str, str] | None = None
    """The columns of another place: each row is a stroke from `x` and `y` to there, as on a map."""


class Table(msgspec.Struct, frozen=True):
    """A table of the paper, computed again."""

    name: str
    title: str
    cells: Callable[[Results], Sequence[Sequence[str]]]
    """The head, then the lines; only a head if nothing was run."""
    caption: str = ""


class Evidence(msgspec.Struct, frozen=True):
    """What came of a claim. `holds` is None where too little was run to say."""

    holds: bool | None
    numbers: str
    """What was measured, as a reader wants to see it: "1.8 at 10 objects, 4.1 at 1,000"."""
    cause: str = ""
    """Why it fails, with numbers of these very results."""


class TooLittle(Exception):
    """Too little was run to judge a claim; its text says what is missing."""


class Claim(msgspec.Struct, frozen=True):
    """A sentence of a paper that can be wrong, and how it is checked."""

    name: str
    says: str
    """The claim, in our words."""
    expected: str
    """What the numbers must be for it to hold."""
    check: Callable[[Results], Evidence]
    reason: str = ""
    """Why it failed in the runs `seen`, where the cause has been found."""
    seen: str = ""
    """Which those were: a cause that is not computed says when it was found."""

    def judge(self, results: Results) -> Evidence:
        """Check it; a check that raises `TooLittle` leaves it undecided."""
        try:
            return self.check(results)
        except TooLittle as error:
            return Evidence(None, str(error))


class Study(msgspec.Struct, frozen=True):
    """The evaluation of one paper, repeated."""

    name: str
    title: str
    paper: str
    """Authors, title and year."""
    method: str
    """How it is run, in Markdown: what the network, the clients and the counts are."""
    choices: tuple[Choice, ...]
    experiments: tuple[Experiment, ...]
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...] = ()

    def experiment(self, name: str) -> Experiment:
        """The one of this name."""
        return next(each for each in self.experiments if each.name == name)


def study_named(name: str) -> Study:
    """A study of the papers, loaded when it is asked for."""
    if name not in STUDIES:
        raise InvalidInput(f"{name!r} is no study; it is one of {', '.join(STUDIES)}")
    return cast(Study, import_module(f"palio_studies.{name}").STUDY)


def points_of(study: Study, scale: Scale) -> list[Point]:
    """Every run of a study, the longest first."""
    found = [
        (-each.weight(point), point.name, point)
        for each in study.experiments
        for point in each.points(scale)
    ]
    return [point for *_, point in sorted(found, key=lambda one: one[:2])]


SEEN: Final = "at paper scale on 23 November 2026"
"""When most causes of failures were found."""

SEEDS: Final[Mapping[Scale, int]] = {Scale.SMALL: 2, Scale.PAPER: 10, Scale.BEYOND: 3}
"""Runs of each set of parameters, with seeds counted from 1."""


def with_seeds(
    experiment: str, parameters: Iterable[Mapping[str, Any]], seeds: int
) -> Iterable[Point]:
    """A point for each set of parameters and each seed."""
    for each in parameters:
        for seed in range(1, seeds + 1):
            yield Point(experiment, dict(each), seed)


def grid(**columns: Sequence[Value]) -> list[dict[str, Value]]:
    """Sets of parameters: every combination of the values of columns.

    >>> grid(routing=["as", "hs"], parties=[1])
    [{'routing': 'as', 'parties': 1}, {'routing': 'hs', 'parties': 1}]
    """
    return [dict(zip(columns, values, strict=True)) for values in product(*columns.values())]


def points_at(
    experiment: str,
    sets: Mapping[Scale, Iterable[Mapping[str, Any]]],
    seeds: Mapping[Scale, int] = SEEDS,
) -> Callable[[Scale], list[Point]]:
    """The points of an experiment by its sets of parameters at each scale; none at the others."""
    kept = {scale: list(each) for scale, each in sets.items()}
    return lambda scale: list(with_seeds(experiment, kept.get(scale, ()), seeds.get(scale, 0)))
