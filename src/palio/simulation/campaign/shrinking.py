"""`shrink`: from a script that fails to a short one that fails alike, printed as a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from palio.simulation.campaign.scripts import Breach, Script, Step

__all__ = ["as_test", "shrink"]

MOST_TRIES: Final = 300
"""Runs that shrinking may take: at about 0.1 s each, half a minute."""

Trial: TypeAlias = Callable[[Script], Sequence[Breach]]


def shrink(script: Script, kind: str, trial: Trial, tries: int = MOST_TRIES) -> Script:
    """Remove steps as long as it still fails in the same way: halves of them, then smaller parts,
    then one by one, until nothing can be removed (or it was tried often enough).

    >>> steps = tuple(Step(float(number), "reset", ("b1", "b2")) for number in range(10))
    >>> script = Script(1, "acyclic", ("b1", "b2"), (("b1", "b2"),), steps)
    >>> fails = lambda one: [Breach("lost", "")] if len(one.steps) > 2 else []
    >>> len(shrink(script, "lost", fails).steps)
    3
    """
    left = tries
    size = max(1, len(script.steps) // 2)
    while left > 0:
        removed = False
        at = 0
        while at < len(script.steps) and left > 0:
            rest: tuple[Step, ...] = script.steps[:at] + script.steps[at + size :]
            shorter = script.with_steps(rest)
            left -= 1
            if any(breach.kind == kind for breach in trial(shorter)):
                script, removed = shorter, True
            else:
                at += size
        if size == 1 and not removed:
            break
        size = max(1, size // 2) if not removed or size > 1 else 1
    return script


def as_test(script: Script, breach: Breach) -> str:
    """A test that fails as the script does, to be pasted into a file of tests.

    >>> print(
    ...     as_test(
    ...         Script(7, "acyclic", ("b1",), (), (Step(0.5, "join", ("a", "b1")),)),
    ...         Breach("lost", "a did not hear it"),
    ...     )
    ... )
    from palio.simulation.campaign import Border, Script, Step, play
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
                Step(at_s=0.5, what='join', words=('a', 'b1')),
            ),
            sync_s=0.002,
            window_bytes=1048576,
            queue_bytes=1048576,
            grants=False,
            gate=None,
        )
        assert play(script).breaches == ()
    """
    lines = [
        "from palio.simulation.campaign import Border, Script, Step, play",
        "",
        "",
        f"def test_seed_{script.seed}_{breach.kind.replace(' ', '_')}() -> None:",
        f"    # {breach.what}",
        "    script = Script(",
    ]
    for name in script.__struct_fields__:
        value = getattr(script, name)
        if name == "steps":
            steps = [f"            {step!r}," for step in value]
            lines += ["        steps=(", *steps, "        ),"]
        else:
            lines.append(f"        {name}={value!r},")
    return "\n".join([*lines, "    )", "    assert play(script).breaches == ()"])
