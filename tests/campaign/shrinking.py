"""`shrink`: from a script that fails to a short one that fails alike, printed as a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from palio.routing.algorithms import GraphKind, find_algorithm
from palio.simulation.topologies import Topology
from tests.campaign.scripts import Breach, Script, Step

MOST_TRIES: Final = 400
"""Runs that shrinking may take: at about 0.1 s each, less than a minute."""

Trial: TypeAlias = Callable[[Script], Sequence[Breach]]
Variants: TypeAlias = Callable[[Script], Iterator[Script]]


def shrink(script: Script, kind: str, trial: Trial, tries: int = MOST_TRIES) -> Script:
    """Make a script simpler as long as it still fails in the same way: with fewer steps, brokers,
    links and events, with the usual settings and round times, until nothing can be simpler (or it
    was tried often enough).

    >>> steps = tuple(Step(float(number), "reset", ("b1", "b2")) for number in range(10))
    >>> script = Script(1, "acyclic", ("b1", "b2"), (("b1", "b2"),), steps)
    >>> fails = lambda one: [Breach("lost", "")] if len(one.steps) > 2 else []
    >>> len(shrink(script, "lost", fails).steps)
    3
    """
    attempts = _Attempts(kind, trial, tries)
    script = _with_fewer_steps(script, attempts)
    for variants in (_fewer_brokers, _fewer_links, _usual_settings, _plainer_steps):
        script = _simplest(script, attempts, variants)
    return _with_fewer_steps(script, attempts, at_once=1)


class _Attempts:
    """Runs, as many as there may be."""

    def __init__(self, kind: str, trial: Trial, tries: int) -> None:
        self._kind = kind
        self._trial = trial
        self.left = tries

    def fails(self, script: Script) -> bool:
        """Whether a script fails as the first one did; that it does not, if there were enough."""
        if self.left <= 0:
            return False
        self.left -= 1
        return any(breach.kind == self._kind for breach in self._trial(script))


def _with_fewer_steps(script: Script, attempts: _Attempts, at_once: int = 0) -> Script:
    """Remove halves of the steps, then smaller parts, then one by one."""
    size = at_once or max(1, len(script.steps) // 2)
    while attempts.left > 0:
        removed = False
        at = 0
        while at < len(script.steps) and attempts.left > 0:
            rest: tuple[Step, ...] = script.steps[:at] + script.steps[at + size :]
            shorter = script.with_steps(rest)
            if attempts.fails(shorter):
                script, removed = shorter, True
            else:
                at += size
        if size == 1 and not removed:
            break
        size = max(1, size // 2) if not removed or size > 1 else 1
    return script


def _simplest(script: Script, attempts: _Attempts, variants: Variants) -> Script:
    """Take the first variant that fails, and of that the next, until none does."""
    at = 0
    while attempts.left > 0:
        for each in islice(variants(script), at, None):
            if attempts.fails(each):
                script = each
                break
            at += 1
        else:
            break
    return script


# --- what is simpler ---


def _fewer_brokers(script: Script) -> Iterator[Script]:
    """Two neighbours become one, whatever is about either of them."""
    gate = script.gate
    beyond = frozenset() if gate is None else frozenset(gate.beyond)
    for pair in script.edges:
        for gone, kept in (pair, pair[::-1]):
            if (gone in beyond) == (kept in beyond) and (gate is None or gone != gate.broker):
                yield _joined(script, gone, kept)


def _joined(script: Script, gone: str, kept: str) -> Script:
    def named(word: Any) -> Any:
        if isinstance(word, tuple):
            return tuple(dict.fromkeys(map(named, word)))
        return kept if word == gone else word

    edges = [(named(one), named(other)) for one, other in script.edges]
    steps = [Step(each.at_s, each.what, tuple(map(named, each.words))) for each in script.steps]
    gate = script.gate
    return replace(
        script,
        brokers=tuple(each for each in script.brokers if each != gone),
        edges=tuple(dict.fromkeys((one, other) for one, other in edges if one != other)),
        steps=tuple(each for each in steps if each.words[:2] != (kept, kept)),
        gate=gate and replace(gate, beyond=tuple(each for each in gate.beyond if each != gone)),
    )


def _fewer_links(script: Script) -> Iterator[Script]:
    """Without a link, where there is another way."""
    if find_algorithm(script.routing).graph is GraphKind.GRAPH:
        for edge in script.edges:
            edges = tuple(each for each in script.edges if each != edge)
            if Topology(script.brokers, edges).is_connected:
                yield replace(script, edges=edges)


def _usual_settings(script: Script) -> Iterator[Script]:
    for name, usual in _usual().items():
        if getattr(script, name) != usual:
            yield replace(script, **{name: usual})


def _plainer_steps(script: Script) -> Iterator[Script]:
    """Fewer events, plainer filters, shorter numbers."""
    for number, step in enumerate(script.steps):
        for words in _plainer_words(step):
            yield _with_step(script, number, Step(step.at_s, step.what, words))
        at_s = round(step.at_s, 1)
        before = script.steps[number - 1].at_s if number else 0.0
        if at_s != step.at_s and at_s >= before:
            yield _with_step(script, number, Step(at_s, step.what, step.words))


def _plainer_words(step: Step) -> Iterator[tuple[Any, ...]]:
    words = step.words
    match step.what, words:
        case "publish", (who, durable, *events):
            if len(events) > 1:
                for at in range(len(events)):
                    yield (who, durable, *events[:at], *events[at + 1 :])
            if durable:
                yield who, False, *events
        case "hear", (who, name, text, values, durable):
            if (text, values) != (EVERYTHING, {}):
                yield who, name, EVERYTHING, {}, durable
            if durable:
                yield who, name, text, values, False
    for at, word in enumerate(words):
        if isinstance(word, float) and round(word, 1) != word:
            yield (*words[:at], round(word, 1), *words[at + 1 :])


EVERYTHING: Final = "EXISTS kind"
"""The plainest filter: all events have that."""


def _with_step(script: Script, number: int, step: Step) -> Script:
    return script.with_steps((*script.steps[:number], step, *script.steps[number + 1 :]))


def _usual() -> dict[str, Any]:
    """What a script has unless it is said, apart from what makes it one."""
    plain = Script(0, "", (), (), ())
    needed = {"seed", "routing", "brokers", "edges", "steps", "gate"}
    return {name: getattr(plain, name) for name in plain.__struct_fields__ if name not in needed}


def as_test(script: Script, breach: Breach) -> str:
    """A test that fails as the script does, to be pasted into a file of tests.

    >>> print(
    ...     as_test(
    ...         Script(7, "acyclic", ("b1",), (), (Step(0.5, "join", ("a", "b1")),)),
    ...         Breach("lost", "a did not hear it"),
    ...     )
    ... )
    from tests.campaign.judgement import play
    from tests.campaign.scripts import Script, Step
    <BLANKLINE>
    <BLANKLINE>
    def test_seed_7_lost() -> None:
        # a did not hear it
        script = Script(
            seed=7,
            routing='acyclic',
            brokers=('b1',),
            edges=(),
            steps=(
                Step(0.5, 'join', ('a', 'b1')),
            ),
        )
        assert play(script).breaches == ()
    """
    border = "Border, " if script.gate is not None else ""
    lines = [
        "from tests.campaign.judgement import play",
        f"from tests.campaign.scripts import {border}Script, Step",
        "",
        "",
        f"def test_seed_{script.seed}_{breach.kind.replace(' ', '_')}() -> None:",
        f"    # {breach.what:.300}",
        "    script = Script(",
    ]
    usual = {**_usual(), "gate": None}
    for name in script.__struct_fields__:
        value = getattr(script, name)
        if name == "steps":
            steps = [
                f"            Step({each.at_s!r}, {each.what!r}, {each.words!r})," for each in value
            ]
            lines += ["        steps=(", *steps, "        ),"]
        elif name not in usual or value != usual[name]:
            lines.append(f"        {name}={value!r},")
    return "\n".join([*lines, "    )", "    assert play(script).breaches == ()"])
