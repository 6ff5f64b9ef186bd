from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import palio
from palio.errors import (
    InvalidBinding,
    InvalidFilter,
    InvalidInput,
    LimitExceeded,
    NotAuthenticated,
    NotPermitted,
)
from palio.language.parsing import parse_filter
from palio.model.events import rows, to_batches
from palio.model.filters import FALSE, TRUE, Filter
from palio.model.limits import MAX_COMPUTED_CHARS
from palio.model.row_parcels import RowParcel
from palio.node.authority import (
    Limits,
    NamedAuthority,
    OpenAuthority,
    Principal,
    check_advertisement,
    narrow,
    publishable,
    receivable,
)
from palio.node.effects import Moment
from palio.protocol.messages import (
    Parcel,
)
from tests.model.sendable import some_filter, some_values
from tests.strategies import SEEDS, bindings, examples, filters, fresh, nearby

EPOCH = Moment(0.0, 0)


# --- principals ---


def test_nothing_is_granted_by_default() -> None:
    nobody = Principal("nobody")
    with pytest.raises(NotPermitted, match="'nobody' may receive nothing that matches x > 1"):
        narrow(parse_filter("x > 1"), {}, nobody)
    (batch,) = to_batches([{"x": 1}])
    assert not publishable(nobody, Parcel("p", batch)).any()
    assert not receivable(nobody, Parcel("p", batch)).any()


def test_who_was_not_granted_to_monitor_is_told_so() -> None:
    Principal("ops", may_monitor=True).check_monitor("the topology")
    with pytest.raises(NotPermitted, match=r"'nobody' may not query the topology.*`monitor`"):
        Principal("nobody", TRUE, TRUE).check_monitor("the topology")


def test_who_changes_the_network_was_granted_that_whatever_else_it_may_do() -> None:
    Principal("ops", may_operate=True).check_operate("drain a broker")
    advice = r"'ann' may not drain a broker: to change the network needs .*create --operate"
    with pytest.raises(NotPermitted, match=advice):
        Principal("ann", TRUE, TRUE, may_monitor=True).check_operate("drain a broker")


def test_a_principal_acts_under_its_own_name_and_those_granted_to_it() -> None:
    planner = Principal("planner", identities=frozenset(("ann", "bob")))
    for identity in ("planner", "ann", "bob"):
        planner.check_identity(identity)
    with pytest.raises(NotPermitted, match=r"'planner' may not act as 'anne'.*--identity"):
        planner.check_identity("anne")
    with pytest.raises(NotPermitted, match="'ann' may not act as 'planner'"):
        Principal("ann", TRUE, TRUE, may_monitor=True).check_identity("planner")
    with pytest.raises(InvalidInput, match="an identity cannot be called"):
        Principal("planner", identities=frozenset(("a/b",)))


def test_a_principal_has_a_name() -> None:
    for name in ("", "..", "a/b", "a\nb"):
        with pytest.raises(InvalidInput, match="a principal cannot be called"):
            Principal(name)


@pytest.mark.parametrize(
    "what", ["allow_publish", "allow_subscribe", "deny_publish", "deny_subscribe"]
)
def test_a_grant_has_no_parameters(what: str) -> None:
    grant: dict[str, Any] = {what: parse_filter("x < :limit")}
    with pytest.raises(InvalidFilter, match=f"{what} of 'alice' has the parameter :limit"):
        Principal("alice", **grant)


def test_a_principal_ends_at_its_time_and_not_before() -> None:
    guest = Principal("guest", expires_us=1_000)
    guest.check(Moment(5.0, 999))
    for wall_us in (1_000, 1_001):
        with pytest.raises(NotAuthenticated, match="'guest' has expired"):
            guest.check(Moment(5.0, wall_us))


# --- authorities ---


def test_the_open_authority_lets_everyone_do_everything() -> None:
    authority = OpenAuthority()
    anyone = authority.authenticate("whatever", "north", EPOCH)
    assert (anyone.name, anyone.allow_publish, anyone.allow_subscribe) == ("anyone", TRUE, TRUE)
    assert anyone.may_monitor
    assert anyone.may_operate
    authority.check(anyone, Moment(1e9, 10**18))


def test_named_principals_are_who_the_transport_shows_them_to_be() -> None:
    north = Principal("north", TRUE, TRUE, expires_us=10)
    authority = NamedAuthority({"north": north})
    assert authority.authenticate("", "north", EPOCH) is north
    authority.check(north, EPOCH)
    with pytest.raises(NotAuthenticated, match="'south' was granted nothing"):
        authority.authenticate("", "south", EPOCH)
    with pytest.raises(NotAuthenticated, match="no certificate"):
        authority.authenticate("a token", "", EPOCH)
    with pytest.raises(NotAuthenticated, match="expired"):
        authority.authenticate("", "north", Moment(0.0, 10))
    with pytest.raises(NotAuthenticated, match="expired"):
        authority.check(north, Moment(0.0, 10))
    with pytest.raises(NotAuthenticated, match="no longer listed"):
        authority.check(Principal("north", TRUE, TRUE), EPOCH)


# --- subscriptions ---


def test_a_subscription_within_the_grant_stays_as_it_is() -> None:
    reader = Principal("reader", allow_subscribe=parse_filter("x > 0"))
    for text in ("x > 5", "x = 3 AND y < :limit", "x > 1 AND x < :limit OR x > 7"):
        asked = parse_filter(text)
        assert narrow(asked, {"limit": 9}, reader) == asked
    everyone = Principal("everyone", allow_subscribe=TRUE)
    wide = parse_filter("a < :limit OR b > 1")
    assert narrow(wide, {"limit": 1}, everyone) == wide


def test_one_beyond_the_grant_is_narrowed_alternative_by_alternative() -> None:
    reader = Principal("reader", allow_subscribe=parse_filter("x > 0"))
    narrowed = narrow(parse_filter("x > 5 OR y = 1 OR x < 0"), {}, reader)
    assert narrowed == parse_filter("x > 5 OR y = 1 AND x > 0")


def test_a_parameter_that_leaves_nothing_now_may_leave_something_later() -> None:
    reader = Principal("reader", allow_subscribe=parse_filter("price > 50"))
    narrowed = narrow(parse_filter("price < :limit"), {"limit": 10}, reader)
    assert narrowed.matches({"price": 60}, {"limit": 70})


def test_what_no_value_could_permit_is_refused() -> None:
    reader = Principal("reader", allow_subscribe=parse_filter("symbol = 'IBM'"))
    with pytest.raises(NotPermitted, match=r"may receive nothing .* it may receive symbol = 'IBM'"):
        narrow(parse_filter("symbol = 'MSFT' AND price < :limit"), {"limit": 1}, reader)


def test_an_error_shows_no_endless_filter() -> None:
    long = parse_filter(f"symbol IN ({', '.join(repr(f'S{n}') for n in range(1_000))})")
    with pytest.raises(NotPermitted) as caught:
        narrow(long, {}, Principal("nobody"))
    assert len(str(caught.value)) < 400


def test_an_impossible_filter_is_no_matter_of_authority() -> None:
    assert narrow(FALSE, {}, Principal("nobody")) == FALSE


def test_missing_values_are_told_first() -> None:
    with pytest.raises(InvalidBinding, match=":limit has no value"):
        narrow(parse_filter("price < :limit"), {}, Principal("nobody"))


def test_deny_wins_over_a_grant() -> None:
    reader = Principal("reader", allow_subscribe=TRUE, deny_subscribe=parse_filter("x = 1"))
    with pytest.raises(NotPermitted):
        narrow(parse_filter("x = 1"), {}, reader)
    narrowed = narrow(parse_filter("y = 1"), {}, reader)
    for event, heard in (
        ({"y": 1}, True),  # no x: it is not denied
        ({"y": 1, "x": 2}, True),
        ({"y": 1, "x": "a"}, True),
        ({"y": 1, "x": 1}, False),
        ({"y": 1, "x": 1.0}, False),
    ):
        assert narrowed.matches(event) is heard


def test_denying_everything_leaves_nothing() -> None:
    with pytest.raises(NotPermitted):
        narrow(
            parse_filter("x = 1"),
            {},
            Principal("reader", allow_subscribe=TRUE, deny_subscribe=TRUE),
        )


@examples(100)
@given(SEEDS)
def test_what_is_narrowed_every_broker_reads_with_any_values(seed: int) -> None:
    """Brokers are sent the narrowed filter with its parameters, and bind it themselves."""
    rng = random.Random(seed)
    may, denied, asked = (some_filter(rng) for _ in range(3))
    if may is None or denied is None or asked is None:
        return
    values = some_values(rng)
    try:
        granted = Principal(
            "p", allow_subscribe=may.bind(values), deny_subscribe=denied.bind(some_values(rng))
        )
        narrowed = narrow(asked, values, granted)
    except (InvalidInput, NotPermitted):
        return
    assert fresh(str(narrowed)) == narrowed
    bound = narrowed.bind(values)
    assert fresh(str(bound)) == bound


def test_a_grant_that_makes_a_filter_too_large_is_told_at_once() -> None:
    """Fifty alternatives by fifty would be 2,500, each with the long text in it."""
    may = parse_filter(" OR ".join(f"a{place} < 1" for place in range(50)))
    granted = Principal("p", allow_subscribe=may)
    with pytest.raises(LimitExceeded, match="MAX_CONJUNCTIONS"):
        narrow(parse_filter(" OR ".join(f"b{place} < 1" for place in range(50))), {}, granted)
    with pytest.raises(LimitExceeded, match="MAX_TEXT_CHARS"):
        narrow(parse_filter("s = :text"), {"text": "x" * 60_000}, granted)


def test_a_residual_denial_that_is_unknown_leaves_an_event_out() -> None:
    reader = Principal(
        "reader", allow_subscribe=TRUE, deny_subscribe=parse_filter("LENGTH(name) > 3")
    )
    narrowed = narrow(parse_filter("x = 1"), {}, reader)
    assert narrowed.matches({"x": 1, "name": "abc"})
    assert not narrowed.matches({"x": 1, "name": "abcd"})
    assert not narrowed.matches({"x": 1})


@pytest.mark.parametrize(
    ("denied", "event"),
    [
        ("UPPER(a) LIKE 'X%'", {"a": "x" * (MAX_COMPUTED_CHARS + 1)}),
        ("x = 1 AND CONCAT(a, b) LIKE 'x%'", {"x": 1, "a": "x" * MAX_COMPUTED_CHARS, "b": "y"}),
        ("COALESCE(b, a) = 'x'", {"a": "x" * (MAX_COMPUTED_CHARS + 1)}),
        ("CESQL 'LEFT(a, 1) = ''x'''", {"a": "x" * (MAX_COMPUTED_CHARS + 1)}),
        ("CONCAT(a, a) = 'x'", {"a": "x" * (MAX_COMPUTED_CHARS // 2 + 1)}),
        ("LENGTH(UPPER(UPPER(a))) > 5", {"a": "\u0390" * (MAX_COMPUTED_CHARS // 3 + 1)}),
    ],
)
def test_nothing_passes_a_denial_by_the_length_of_its_texts(
    denied: str, event: dict[str, Any]
) -> None:
    filter = parse_filter(denied)
    assert filter.truth(event) is None
    held = Principal("p", TRUE, TRUE, deny_publish=filter, deny_subscribe=filter)
    for count in (1, 40):
        (batch,) = to_batches([event] * count)
        for parcel in (Parcel("p", batch), RowParcel("p", [event] * count)):
            assert not publishable(held, parcel).any()
            assert not receivable(held, parcel).any()
    narrowed = narrow(parse_filter("z IS NULL"), {}, held)
    assert not narrowed.matches(event)
    without = RowParcel("p", [{"z": 1}])  # what lacks the attribute is not denied
    assert publishable(held, without).all()


def test_an_advertisement_must_announce_something_publishable() -> None:
    ticker = Principal("ticker", allow_publish=parse_filter("symbol = 'IBM'"))
    check_advertisement(palio.parse_advertisement("symbol IN ('IBM', 'MSFT')"), ticker)
    with pytest.raises(NotPermitted, match="may publish nothing that symbol = 'MSFT' announces"):
        check_advertisement(palio.parse_advertisement("symbol = 'MSFT'"), ticker)


# --- events ---


def test_a_grant_of_everything_looks_at_nothing() -> None:
    (batch,) = to_batches([{"price": 1}, {}])
    assert publishable(Principal("root", TRUE), Parcel("p", batch)).all()
    assert receivable(Principal("root", FALSE, TRUE), Parcel("p", batch)).all()
    denied = Principal("root", TRUE, deny_publish=parse_filter("price = 1"))
    assert publishable(denied, Parcel("p", batch)).tolist() == [False, True]


# --- no event beyond a grant ---

CASES = 25
"""Events for each drawn grant and filter: 400 of them make 10,000 cases."""


def _is_plain(denied: Filter) -> bool:
    return not any(one.residuals for one in denied.conjunctions)


@examples(400)
@given(
    filters(variables=True, leaves=3),
    bindings(),
    filters(leaves=3),
    filters(leaves=2),
    st.booleans(),
    SEEDS,
)
def test_no_event_is_heard_beyond_a_grant(
    asked: Filter, values: dict[str, Any], may: Filter, denied: Filter, denies: bool, seed: int
) -> None:
    principal = Principal("p", allow_subscribe=may, deny_subscribe=denied if denies else FALSE)
    try:
        asked.bind(values)
        narrowed = narrow(asked, values, principal)
    except palio.errors.InvalidInput:
        return  # a value that the filter cannot use, or a product beyond the limits
    except NotPermitted:
        narrowed = FALSE
    bound = asked.bind(values)
    events = list(nearby(bound, may, principal.deny_subscribe, seed=seed, count=CASES))
    rng = random.Random(seed)
    for event in events:
        granted = may.matches(event) and not principal.deny_subscribe.matches(event)
        heard = narrowed.matches(event, {name: values[name] for name in narrowed.variables})
        assert not heard or (granted and bound.matches(event))
        nan = any(isinstance(each, float) and math.isnan(each) for each in event.values())
        if _is_plain(principal.deny_subscribe) and not nan:
            assert heard == (granted and bound.matches(event))
        # Whatever the parameters become, the grant holds.
        moved = {name: rng.choice((values[name], 0, "a")) for name in narrowed.variables}
        try:
            assert granted or not narrowed.matches(event, moved)
        except palio.errors.InvalidInput:
            continue


@examples(30)
@given(filters(leaves=3), filters(leaves=2), st.booleans(), SEEDS)
def test_no_event_is_published_or_forwarded_beyond_a_grant(
    may: Filter, denied: Filter, denies: bool, seed: int
) -> None:
    denied = denied if denies else FALSE
    principal = Principal("p", may, may, denied, denied)
    for batch in to_batches(nearby(may, denied, seed=seed, count=CASES)):
        expected = [may.matches(event) and not denied.matches(event) for event in rows(batch)]
        np.testing.assert_array_equal(publishable(principal, Parcel("p", batch)), expected)
        np.testing.assert_array_equal(receivable(principal, Parcel("p", batch)), expected)
        for row, is_granted in enumerate(expected):
            alone = Parcel.of("p", batch.slice(row, 1))
            assert publishable(principal, alone).tolist() == [is_granted]


# --- limits ---


@pytest.mark.parametrize("name", ["sessions", "subscriptions", "events_per_s", "bytes_per_s"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_a_limit_is_above_zero(name: str, value: float) -> None:
    limit: dict[str, Any] = {name: value}
    with pytest.raises(InvalidInput, match=f"the limit {name} is {value}"):
        Limits(**limit)
