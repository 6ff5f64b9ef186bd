"""The proxy paper's claims: section II compares in words, and V asks what is measured here."""

from __future__ import annotations

from typing import Final

from palio_studies.checks import all_hold, is_below, listed, needed
from palio_studies.names import Row, Value
from palio_studies.proxy_runs import REGISTERED, SHORTENED
from palio_studies.results import Results, fitted_exponent
from palio_studies.study import SEEN, Claim, Evidence

LINEAR_FROM: Final = 0.9
"""An exponent from here on, over the number of receivers, is called linear."""

RESYNCHRONIZED_S: Final = 10.0
"""Half of the time that is watched after a fault."""

_EXACT: Final = 1 + 1e-9
"""A stretch of 1, but for what adding up floats leaves."""

_NOTHING: Final = "nothing was run"

SEEN_REGISTERED: Final = "at paper scale on 28 November 2026"


def _rows(results: Results, experiment: str, **where: Value) -> list[Row]:
    """The rows of an experiment, without which a claim is open."""
    rows = results.rows(experiment, **where)
    needed(rows, _NOTHING)
    return rows


def _most(results: Results, experiment: str, column: str, **where: Value) -> float:
    return max(float(row[column]) for row in _rows(results, experiment, **where))


# --- section II ---


def _source_state(results: Results) -> Evidence:
    rows = results.rows("designs", design="distributed")
    most = max((row["sources"] for row in rows), default=0)
    sizes = [float(row["receivers"]) for row in rows if row["sources"] == most]
    needed(len(set(sizes)) >= 3, _NOTHING)
    lines = [float(row["source_lines"]) for row in rows if row["sources"] == most]
    exponent = fitted_exponent(sizes, lines)
    others = max(
        _most(results, "designs", "source_lines", design=design)
        for design in ("single proxy", "multi-proxy")
    )
    return Evidence(
        exponent.low >= LINEAR_FROM and not others,
        f"{max(lines):.0f} at {max(sizes):.0f} receivers, exponent {exponent}; "
        f"{others:.0f} with proxies",
    )


def _heartbeats(results: Results) -> Evidence:
    pairs = {
        (int(row["sources"]), int(row["receivers"])): int(row["watched_pairs"])
        for row in _rows(results, "designs", design="distributed")
    }
    is_product = all(count == sources * each for (sources, each), count in pairs.items())
    (sources, receivers), most = max(pairs.items(), key=lambda pair: pair[1])
    found = results.mean("designs", "watched_pairs", ["design", "sources", "receivers"])
    several = found["multi-proxy", sources, receivers].value
    return Evidence(
        is_product and several < most,
        f"{most:,} pairs for {sources} sources and {receivers} receivers; "
        f"{several:,.0f} with a hierarchy",
    )


def _one_proxy_watches_all(results: Results) -> Evidence:
    rows = _rows(results, "designs", design="single proxy")
    every = all(row["watched_most"] == int(row["sources"]) + int(row["receivers"]) for row in rows)
    one, several = (
        _most(results, "designs", "watched_most", design=design)
        for design in ("single proxy", "multi-proxy")
    )
    numbers = f"up to {one:.0f} at the one proxy, up to {several:.0f} at one of a hierarchy"
    return Evidence(every and several < one, numbers)


def _load(results: Results) -> Evidence:
    most = int(_most(results, "designs", "receivers"))
    found = results.mean("designs", "most_sent", ["design"], receivers=most)
    one, several = (found[name,] for name in ("single proxy", "multi-proxy"))
    numbers = f"{several} copies of an event against {one}, with {most} receivers"
    return Evidence(is_below(several, one), numbers)


# --- section V ---


def _latency(results: Results) -> Evidence:
    hierarchy, mesh = (
        results.mean("locality", "stretch", ["network"], organization=name)
        for name in ("hierarchy", "mesh")
    )
    needed(hierarchy, _NOTHING)
    longer = [
        True if mean.low > 1 else None if mean.high > 1 else False for mean in hierarchy.values()
    ]
    exact = [mean.value <= _EXACT for mean in mesh.values()]
    told = listed(((network, mean) for (network,), mean in hierarchy.items()), "{1} ({0})")
    numbers = f"a hierarchy takes {told} times the shortest way, the mesh 1"
    return Evidence(all_hold([*longer, *exact]), numbers)


def _state(results: Results) -> Evidence:
    hierarchy, mesh = (
        results.mean("sizes", "entries", ["proxies"], organization=name)
        for name in ("hierarchy", "mesh")
    )
    needed(hierarchy, _NOTHING)
    holds = all(hierarchy[size].high < mesh[size].low for size in hierarchy)
    sizes = list(hierarchy)
    told = ", ".join(
        f"{hierarchy[size]} against {mesh[size]} with {size[0]}" for size in (sizes[0], sizes[-1])
    )
    return Evidence(holds, f"entries a proxy: {told}")


def _root(results: Results) -> Evidence:
    size = int(_most(results, "sizes", "proxies"))
    most = results.mean("sizes", "entries_most", ["organization"], proxies=size)
    root, mesh = most["hierarchy",], most["mesh",]
    mean = results.mean("sizes", "entries", ["organization"], proxies=size)["hierarchy",]
    numbers = f"{root} at the root, {mean} on average, {mesh} in a mesh: {size} proxies"
    return Evidence(all_hold([root.value >= mesh.value, is_below(mean, mesh)]), numbers)


def _locality_state(results: Results) -> Evidence:
    saved = {}
    for name in ("hierarchy", "mesh"):
        lines = list(results.line("locality", "lines", "locality", organization=name).values())
        needed(lines, _NOTHING)
        saved[name] = 1 - lines[-1] / lines[0]
    told = ", ".join(f"{name} {100 * share:.0f}% fewer" for name, share in saved.items())
    return Evidence(
        saved["hierarchy"] > max(0.05, saved["mesh"]),
        f"lines of a proxy where all interest is local: {told}",
    )


def _locality_stretch(results: Results) -> Evidence:
    ends = {}
    for network in results.values("locality", "network"):
        stretch = results.line(
            "locality", "stretch", "locality", organization="hierarchy", network=network
        )
        ends[network] = (stretch[min(stretch)], stretch[max(stretch)])
    needed(ends, _NOTHING)
    told = ", ".join(f"{network} {far:.2f} to {near:.2f}" for network, (far, near) in ends.items())
    return Evidence(all(near < far for far, near in ends.values()), told)


def _shortcuts(results: Results) -> Evidence:
    plain, short = (
        results.line("locality", "stretch", "network", organization=name)
        for name in ("hierarchy", SHORTENED)
    )
    needed(short, _NOTHING)
    states = results.line("locality", "entries", "organization")
    without, with_some, mesh = (states[name] for name in ("hierarchy", SHORTENED, "mesh"))
    is_nowhere_longer = all(short[network] <= plain[network] for network in plain)
    is_shorter = any(short[network] < plain[network] for network in plain)
    told = ", ".join(f"{each} {plain[each]:.2f} to {short[each]:.2f}" for each in plain)
    return Evidence(
        is_nowhere_longer and is_shorter and without < with_some < mesh,
        f"stretch: {told}; entries a proxy: {without:.3g}, {with_some:.3g} with shortcuts, "
        f"{mesh:.3g} in a mesh",
    )


# --- section IV-C ---


def _registered_state(results: Results) -> Evidence:
    columns = ("lines_most", "lines", "entries_most", "requests")
    found = {}
    for column in columns:
        means = results.line("locality", column, "organization")
        needed(REGISTERED in means, _NOTHING)
        found[column] = means[REGISTERED], means["hierarchy"]
    told = [f"{by:.3g} against {here:.3g}" for by, here in found.values()]
    return Evidence(
        all(found[column][0] < found[column][1] for column in ("lines_most", "lines")),
        f"lines at the root {told[0]}, of a proxy on average {told[1]}; entries at the root "
        f"{told[2]}; messages {told[3]}",
    )


def _sporadic(results: Results) -> Evidence:
    by, here = (
        min(float(row["sporadic"]) for row in _rows(results, "locality", organization=name))
        for name in (REGISTERED, "hierarchy")
    )
    return Evidence(by == here == 1, f"{by:.0%} by IV-C.1 at the least, {here:.0%} here")


# --- section IV-F ---


def _hop_by_hop(results: Results) -> Evidence:
    rows = results.rows("groups", fault="none", spare=False)
    needed(len({row["brokers"] for row in rows}) >= 3, _NOTHING)
    sizes = [float(row["brokers"]) - 1 for row in rows]
    exponent = fitted_exponent(sizes, [float(row["beats_per_s"]) for row in rows])
    most = max(rows, key=lambda row: int(row["brokers"]))
    return Evidence(
        exponent.high <= 1.1,
        f"exponent {exponent} over the number of children; {most['beats_per_s']:.0f} messages a "
        f"second in a group of {most['brokers']}",
    )


def _group_beats(results: Results) -> Evidence:
    rows = results.rows("groups", fault="none", spare=False)
    needed(rows, _NOTHING)
    most = max(rows, key=lambda row: int(row["brokers"]))
    return Evidence(
        float(most["beats_per_s"]) < float(most["multicast_beats_per_s"]),
        f"{most['beats_per_s']:,.0f} messages a second over the links of {most['brokers']} "
        f"brokers, {most['multicast_beats_per_s']:,.0f} received if all hear all",
    )


def _faults(results: Results) -> list[Row]:
    rows = [row for row in results.rows("groups") if row["fault"] != "none"]
    needed(rows, _NOTHING)
    return rows


def _noticed(results: Results) -> Evidence:
    rows = _faults(results)
    every = all(row["is_noticed"] for row in rows)
    slowest = max(float(row["noticed_s"]) for row in rows)
    is_quiet = not any(row["is_noticed"] for row in results.rows("groups", fault="none"))
    return Evidence(
        every and is_quiet,
        f"{'all' if every else 'not all'} {len(rows)} faults, the slowest after {slowest:.1f} s",
    )


def _resynchronized(results: Results) -> Evidence:
    rows = _faults(results)
    after, back = (
        max(float(row[column]) for row in rows) for column in ("others_after_s", "back_after_s")
    )
    return Evidence(
        max(after, back) <= RESYNCHRONIZED_S,
        f"others hear all again at most {after:.1f} s after a fault has ended, the broker that "
        f"was away after {back:.1f} s",
    )


def _another_parent(results: Results) -> Evidence:
    alone, spare = (
        results.line("groups", "others_missed_s", "fault", spare=spare) for spare in (False, True)
    )
    faults = ("parent killed", "parent silent")
    needed(alone.keys() & spare.keys() >= set(faults), _NOTHING)
    told = ", ".join(f"{each}: {spare[each]:.1f} s, without {alone[each]:.1f} s" for each in faults)
    holds = all(2 * spare[each] < alone[each] for each in faults)
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
        SEEN,
    ),
    Claim(
        "shortcuts: latency for state",
        "(V suggests:) with more state in the hierarchy its latency may be less.",
        "the stretch is nowhere larger with shortcuts, and smaller on some network; entries a "
        "proxy are more, and fewer than in the mesh",
        _shortcuts,
    ),
    Claim(
        "registrations: state",
        "(IV-C.1:) where registrations go down, subscriptions stop at nearby sources, and there is "
        "less state.",
        "fewer lines than where all subscriptions go up, at the root and on average",
        _registered_state,
        "Subscriptions that stop spare the root. But each registration that goes down is a line at "
        "every proxy on its way, the parent among the incoming: more than what is spared.",
        SEEN_REGISTERED,
    ),
    Claim(
        "registrations: sporadic sources",
        "(IV-D:) an event inside a registration reaches all who subscribed to stay (PRE).",
        "all receivers of events that nobody announced, published far from the registered source",
        _sporadic,
        "Such an event climbs until a proxy has an entry that it matches. Where subscriptions "
        "stopped at a nearby source, no proxy on its way has one, and the root drops it. Here all "
        "subscriptions go up to the root, so that it is found there.",
        SEEN_REGISTERED,
    ),
    Claim(
        "failures: heartbeats by link",
        "(IV-B:) all proxies of a group exchange heartbeats.",
        "those of the links of the largest group are fewer than if all of it heard all others",
        _group_beats,
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
