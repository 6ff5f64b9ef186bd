"""Explain why an event matches a filter, or why not: each constraint with verdict and reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from palio.model import html
from palio.model.conjunctions import Conjunction
from palio.model.constraints import Constraint, Residual
from palio.model.expressions import Literal
from palio.model.functions import is_too_long
from palio.model.limits import MAX_COMPUTED_CHARS
from palio.model.operators import Op
from palio.model.printing import show_value
from palio.model.values import Bindings, checked, is_nan, kind_of


class Finding(msgspec.Struct, frozen=True):
    """One constraint or residual: its text, its truth (None: unknown) and the reason."""

    text: str
    truth: bool | None
    reason: str


class ExplainedConjunction(msgspec.Struct, frozen=True):
    """One conjunction of the filter: its truth and the finding on each of its parts."""

    truth: bool | None
    findings: tuple[Finding, ...]


class Explanation(msgspec.Struct, frozen=True):
    """The verdict on one event and all that led to it. `str` of it is for people."""

    matched: bool
    truth: bool | None
    alternatives: tuple[ExplainedConjunction, ...]

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings that kept the event from matching (none if it matched)."""
        if self.matched:
            return ()
        return tuple(
            finding
            for alternative in self.alternatives
            for finding in alternative.findings
            if finding.truth is not True
        )

    def __str__(self) -> str:
        lines = ["match" if self.matched else f"no match ({_WORDS[self.truth]})"]
        for place, alternative in enumerate(self.alternatives):
            if len(self.alternatives) > 1:
                lines.append(f"  alternative {place + 1}: {_WORDS[alternative.truth]}")
            lines += [
                f"    {_MARKS[finding.truth]} {finding.text}: {finding.reason}"
                for finding in alternative.findings
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html.lines(self)


_WORDS = {True: "true", False: "false", None: "unknown"}
_MARKS = {True: "+", False: "-", None: "?"}


def explain(
    conjunctions: Iterable[Conjunction],
    truth: bool | None,
    event: Mapping[str, Any],
    values: Bindings,
) -> Explanation:
    """The verdict of a filter's alternatives on an event, with reasons.

    >>> import palio
    >>> print(palio.parse("price < 5").explain({"price": 7}))
    no match (false)
        - price < 5: price is 7
    """
    alternatives = tuple(_alternative(conjunction, event, values) for conjunction in conjunctions)
    return Explanation(truth is True, truth, alternatives)


def _alternative(
    conjunction: Conjunction, event: Mapping[str, Any], values: Bindings
) -> ExplainedConjunction:
    findings = [
        Finding(
            str(constraint), constraint.truth(event, values), _reason(constraint, event, values)
        )
        for constraint in conjunction.constraints
    ]
    for residual in conjunction.residuals:
        truth = residual.truth(event, values)
        reason = _residual_reason(residual, truth, event, values)
        findings.append(Finding(str(residual), truth, reason))
    return ExplainedConjunction(conjunction.truth(event, values), tuple(findings))


def _reason(constraint: Constraint, event: Mapping[str, Any], values: Bindings) -> str:
    value = event.get(constraint.name)
    if value is None:
        return f"{constraint.name} is missing"
    value = checked(value)
    reason = f"{constraint.name} is {_shown(value)}"
    if is_nan(value) and constraint.op is not Op.EXISTS:
        return f"{reason}, which satisfies no comparison"
    expected = _operand_kind(constraint)
    if expected is not None and expected is not kind_of(value):
        reason += f", {kind_of(value).noun} and not {expected.noun}"
    bound = [
        f":{name} is {_shown(values[name])}"
        for name in sorted(constraint.variables)
        if name in values
    ]
    return ", ".join([reason, *bound])


def _operand_kind(constraint: Constraint) -> Any:
    operand = constraint.operand
    first = operand[0] if isinstance(operand, tuple) else operand
    return first.kind if isinstance(first, Literal) else None


def _residual_reason(
    residual: Residual, truth: bool | None, event: Mapping[str, Any], values: Bindings
) -> str:
    missing = sorted(name for name in residual.attributes if event.get(name) is None)
    if missing:
        return f"{', '.join(missing)} missing"
    seen = [f"{name} is {_shown(checked(event[name]))}" for name in sorted(residual.attributes)]
    bound = [f":{name} is {_shown(values[name])}" for name in sorted(residual.variables)]
    long = [name for name in sorted(residual.attributes) if is_too_long(event[name])]
    why = [f"{name} has more than {MAX_COMPUTED_CHARS} characters" for name in long]
    return ", ".join([*seen, *bound, *(why if truth is None else ())]) or "constant"


_SHOWN_CHARS = 60


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        text = repr(value)
    else:
        text = "NaN" if is_nan(value) else show_value(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
