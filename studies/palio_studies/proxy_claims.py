"""The proxy paper's claims: section II compares in words, and V asks what is measured here."""

from __future__ import annotations

from typing import Final

from palio_studies.averages import fitted_exponent
from palio_studies.proxy_runs import SHORTENED
from palio_studies.results import Results
from palio_studies.study import Claim, Evidence

__all__ = ["CLAIMS"]

LINEAR_FROM: Final = 0.9
"""An exponent from here on, over the number of receivers, is called linear."""

RESYNCHRONIZED_S: Final = 10.0
"""Half of the time that is watched after a fault."""

_EXACT: Final = 1 + 1e-9
"""A stretch of 1, but for what adding up floats leaves."""

_NOTHING: Final = Evidence(None, "nothing was run")


def _by_receivers(results: Results, design: str, column: str) -> tuple[list[float], list[float]]:
    """A column over the number of receivers, with the most sources."""
    rows = results.rows("designs", design=design)
    most = max((row["sources"] for row in rows), default=0)
    chosen = [row for row in rows if row["sources"] == most]
    return [float(row["receivers"]) for row in chosen], [float(row[column]) for row in chosen]


def _source_state(results: Results) -> Evidence:
    xs, ys = _by_receivers(results, "distributed", "source_lines")
    if len(set(xs)) < 3:
        return _NOTHING
    grows = fitted_exponent(xs, ys)
    others = [
        float(row["source_lines"])
        for name in ("single proxy", "multi-proxy")
        for row in results.rows("designs", design=name)
    ]
    numbers = (
        f"{max(ys):.0f} at {max(xs):.0f} receivers, exponent {grows}; "
        f"{max(others):.0f} with proxies"
    )
    return Evidence(grows.low >= LINEAR_FROM and not max(others), numbers)


def _heartbeats(results: Results) -> Evidence:
    rows = results.rows("designs", design="distributed")
    if not rows:
        return _NOTHING
    pairs = {
        (int(row["sources"]), int(row["receivers"])): int(row["watched_pairs"]) for row in rows
    }
    product = all(count == sources * each for (sources, each), count in pairs.items())
    (sources, receivers), most = max(pairs.items(), key=lambda each: each[1])
    found = results.mean("designs", "watched_pairs", ["design", "sources", "receivers"])
    several = found["multi-proxy", sources, receivers].value
    numbers = (
        f"{most:,} pairs for {sources} sources and {receivers} receivers; "
        f"{several:,.0f} with a hierarchy"
    )
    return Evidence(product and several < most, numbers)


def _one_proxy_watches_all(results: Results) -> Evidence:
    rows = results.rows("designs", design="single proxy")
    if not rows:
        return _NOTHING
    every = all(row["watched_most"] == int(row["sources"]) + int(row["receivers"]) for row in rows)
    most = max(int(row["watched_most"]) for row in rows)
    several = max(int(row["watched_most"]) for row in results.rows("designs", design="multi-proxy"))
    numbers = f"up to {most} at the one proxy, up to {several} at one of a hierarchy"
    return Evidence(every and several < most, numbers)


def _load(results: Results) -> Evidence:
    found = results.mean("designs", "most_sent", ["design", "receivers"])
    if not found:
        return _NOTHING
    most = max(int(key[1]) for key in found)
    one, several = (found[name, most].value for name in ("single proxy", "multi-proxy"))
    numbers = f"{several:.3g} copies of an event against {one:.3g}, with {most} receivers"
    return Evidence(several < one, numbers)


def _latency(results: Results) -> Evidence:
    found = results.mean("locality", "stretch", ["organization", "network"])
    if not found:
        return _NOTHING
    networks = sorted({str(network) for _, network in found})
    longer = [found["hierarchy", each] for each in networks]
    holds: bool | None = all(each.low > 1 for each in longer) or None
    if any(each.high <= 1 for each in longer):
        holds = False
    if any(found["mesh", each].value > _EXACT for each in networks):
        holds = False
    told = ", ".join(f"{found['hierarchy', each]} ({each})" for each in networks)
    return Evidence(holds, f"a hierarchy takes {told} times the shortest way, the mesh 1")


def _state(results: Results) -> Evidence:
    found = results.mean("sizes", "entries", ["organization", "proxies"])
    if not found:
        return _NOTHING
    sizes = sorted({int(str(size)) for _, size in found})
    holds = all(found["hierarchy", size].high < found["mesh", size].low for size in sizes)
    told = ", ".join(
        f"{found['hierarchy', size]} against {found['mesh', size]} with {size}"
        for size in (sizes[0], sizes[-1])
    )
    return Evidence(holds, f"entries a proxy: {told}")


def _root(results: Results) -> Evidence:
    found = results.mean("sizes", "entries_most", ["organization", "proxies"])
    if not found:
        return _NOTHING
    means = results.mean("sizes", "entries", ["organization", "proxies"])
    size = max(int(str(number)) for _, number in found)
    root, mean = found["hierarchy", size].value, means["hierarchy", size].value
    mesh = found["mesh", size].value
    numbers = f"{root:.0f} at the root, {mean:.3g} on average, {mesh:.0f} in a mesh: {size} proxies"
    return Evidence(root >= mesh and mean < mesh, numbers)


def _locality_state(results: Results) -> Evidence:
    found = results.mean("locality", "lines", ["organization", "locality"])
    if not found:
        return _NOTHING
    least, most = (f({float(str(key[1])) for key in found}) for f in (min, max))
    saved = {
        name: 1 - found[name, most].value / found[name, least].value
        for name in ("hierarchy", "mesh")
    }
    told = ", ".join(f"{name} {100 * share:.0f}% fewer" for name, share in saved.items())
    return Evidence(
        saved["hierarchy"] > max(0.05, saved["mesh"]),
        f"lines of a proxy where all interest is local: {told}",
    )


def _locality_stretch(results: Results) -> Evidence:
    found = results.mean("locality", "stretch", ["network", "locality"], organization="hierarchy")
    if not found:
        return _NOTHING
    networks = sorted({str(network) for network, _ in found})
    least, most = (f({float(str(key[1])) for key in found}) for f in (min, max))
    ends = {each: (found[each, least].value, found[each, most].value) for each in networks}
    told = ", ".join(f"{each} {low:.2f} to {high:.2f}" for each, (low, high) in ends.items())
    return Evidence(all(high < low for low, high in ends.values()), told)


def _shortcuts(results: Results) -> Evidence:
    found = results.mean("locality", "stretch", ["organization", "network"])
    states = results.mean("locality", "entries", ["organization"])
    if (SHORTENED,) not in states:
        return _NOTHING
    networks = sorted({str(network) for _, network in found})
    ways = {
        each: (found["hierarchy", each].value, found[SHORTENED, each].value) for each in networks
    }
    is_nowhere_longer = all(short <= long for long, short in ways.values())
    is_shorter = any(short < long for long, short in ways.values())
    without, with_some, mesh = (states[(name,)].value for name in ("hierarchy", SHORTENED, "mesh"))
    told = ", ".join(f"{each} {long:.2f} to {short:.2f}" for each, (long, short) in ways.items())
    return Evidence(
        is_nowhere_longer and is_shorter and without < with_some < mesh,
        f"stretch: {told}; entries a proxy: {without:.3g}, {with_some:.3g} with shortcuts, "
        f"{mesh:.3g} in a mesh",
    )


def _prices(results: Results) -> Evidence:
    stretches = results.mean("prices", "stretch", ["price"])
    states = results.mean("prices", "entries", ["price"])
    if len(stretches) < 2:
        return _NOTHING
    prices = sorted(float(str(price)) for (price,) in stretches)
    nearness = [stretches[price,].value for price in prices]
    state = [states[price,].value for price in prices]
    holds = nearness == sorted(nearness) and state == sorted(state, reverse=True)
    holds = holds and nearness[0] < nearness[-1] and state[0] > state[-1]
    told = ", ".join(
        f"{price:g}: {far:.2f} with {entries:.3g} entries"
        for price, far, entries in zip(prices, nearness, state, strict=True)
    )
    return Evidence(holds, f"stretch by worth, {told}")


def _hop_by_hop(results: Results) -> Evidence:
    rows = results.rows("groups", fault="none", spare=False)
    if len({row["brokers"] for row in rows}) < 3:
        return _NOTHING
    sizes = [float(row["brokers"]) - 1 for row in rows]
    grows = fitted_exponent(sizes, [float(row["beats_per_s"]) for row in rows])
    most = max(rows, key=lambda row: int(row["brokers"]))
    numbers = (
        f"exponent {grows} over the number of children; {most['beats_per_s']:.0f} messages a "
        f"second in a group of {most['brokers']}"
    )
    return Evidence(grows.high <= 1.1, numbers)


def _noticed(results: Results) -> Evidence:
    rows = [row for row in results.rows("groups") if row["fault"] != "none"]
    if not rows:
        return _NOTHING
    every = all(row["is_noticed"] for row in rows)
    slowest = max(float(row["noticed_s"]) for row in rows)
    quiet = not any(row["is_noticed"] for row in results.rows("groups", fault="none"))
    numbers = (
        f"{'all' if every else 'not all'} {len(rows)} faults, the slowest after {slowest:.1f} s"
    )
    return Evidence(every and quiet, numbers)


def _resynchronized(results: Results) -> Evidence:
    rows = [row for row in results.rows("groups") if row["fault"] != "none"]
    if not rows:
        return _NOTHING
    after = max(float(row["others_after_s"]) for row in rows)
    back = max(float(row["back_after_s"]) for row in rows)
    numbers = (
        f"others hear all again at most {after:.1f} s after a fault has ended, the broker that "
        f"was away after {back:.1f} s"
    )
    return Evidence(max(after, back) <= RESYNCHRONIZED_S, numbers)


def _another_parent(results: Results) -> Evidence:
    found = {
        spare: results.mean("groups", "others_missed_s", ["fault"], spare=spare)
        for spare in (False, True)
    }
    keys = [("parent killed",), ("parent silent",)]
    if not all(key in each for each in found.values() for key in keys):
        return _NOTHING
    told = ", ".join(
        f"{key[0]}: {found[True][key].value:.1f} s, without {found[False][key].value:.1f} s"
        for key in keys
    )
    holds = all(2 * found[True][key].value < found[False][key].value for key in keys)
    return Evidence(holds, f"missed with spare links, {told}")


CLAIMS: Final = (
    Claim(
        "distributed: state",
        "Without proxies every source keeps track of every subscriber; with them it need not.",
        "entries at a source grow linearly with the receivers (exponent 0.9 or more), and are 0 "
        "with proxies",
        _source_state,
    ),
    Claim(
        "distributed: heartbeats",
        "Without proxies heartbeats go between every source and each of its subscribers; with "
        "several proxies there are no global heartbeats.",
        "sources x receivers pairs, and fewer with a hierarchy where both are many",
        _heartbeats,
    ),
    Claim(
        "single proxy: heartbeats",
        "One proxy has to exchange heartbeats with all sources and receivers.",
        "as many as sources and receivers together, and more than any proxy of a hierarchy",
        _one_proxy_watches_all,
    ),
    Claim(
        "single proxy: traffic",
        "Several proxies share the work of one.",
        "the busiest proxy of a hierarchy sends fewer copies of an event than the single one",
        _load,
    ),
    Claim(
        "mesh: latency",
        "A mesh has the smaller delivery latency, if events take the shortest way; a hierarchy may "
        "increase it.",
        "stretch 1 in the mesh, and above 1 with its interval in the hierarchy, on every network "
        "over all localities",
        _latency,
    ),
    Claim(
        "hierarchy: state",
        "A hierarchy scales better: other proxies than the root need not know every event.",
        "entries a proxy, on average, are fewer than in the mesh at every size, intervals apart",
        _state,
    ),
    Claim(
        "hierarchy: root",
        "Only the root has to know where to route every event.",
        "the root knows as much as a proxy of the mesh or more, and the average proxy less",
        _root,
    ),
    Claim(
        "locality: state",
        "(V asks:) where interest is local, a hierarchy has less state, and a mesh has not.",
        "at least 5% fewer lines a proxy with all interest local, and more saved than in the mesh",
        _locality_state,
    ),
    Claim(
        "locality: latency",
        "(V asks:) where interest is local, a hierarchy is nearer to the shortest ways.",
        "its stretch is smaller with all interest local, on every network",
        _locality_stretch,
        "Latency does fall, in ms, but the shortest ways fall more. Two sites that are neighbours "
        "may be in different branches, and what goes from one to the other goes over a common "
        "proxy above: far round for near ones. Where the network is itself a tree of stubs, "
        "branches are stubs, and it matters less.",
    ),
    Claim(
        "shortcuts: latency for state",
        "(V suggests:) with more state in the hierarchy its latency may be less.",
        "the stretch is nowhere larger with shortcuts, and smaller on some network; entries a "
        "proxy are more, and fewer than in the mesh",
        _shortcuts,
    ),
    Claim(
        "shortcuts: what they have to be worth",
        "(V suggests:) what it costs in state is a choice.",
        "the less shortcuts have to be worth, the smaller the stretch and the more entries",
        _prices,
    ),
    Claim(
        "failures: hop by hop",
        "Heartbeats within groups do not grow beyond the links of the hierarchy.",
        "heartbeats of a group, over the number of children: an exponent of 1.1 at the most",
        _hop_by_hop,
    ),
    Claim(
        "failures: noticed",
        "A proxy or link that fails for an extended time is detected by its neighbours.",
        "every fault of 30 s is reported, and nothing where there is none",
        _noticed,
    ),
    Claim(
        "failures: state again",
        "When a failed proxy is heard from again, state is synchronized anew, also where it was "
        "lost.",
        f"all listeners hear every event again within {RESYNCHRONIZED_S:g} s of the end",
        _resynchronized,
    ),
    Claim(
        "failures: another parent",
        "(Left open by the paper:) the hierarchy mends itself where links are left.",
        "less than half of the time is missed that is missed without spare links",
        _another_parent,
    ),
)
