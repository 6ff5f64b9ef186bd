"""What routing costs: every algorithm and every matching (`routing_algorithms`), and with `--full`
covering, overlap, simulator steps and many subscriptions.

    python -m benchmarks.routing                  two minutes
    python -m benchmarks.routing --docs docs/measured    and renew the page routing.md with it
    python -m benchmarks.routing --only index,overlap [--size 100000]

Fixed seeds; CPU seconds of this process, because other work on the machine should not count. With
`--docs` the parts that ran replace their like in routing.json.
"""

from __future__ import annotations

import argparse
import gc
import json
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, Final

import numpy as np

from benchmarks.matching_results import replace
from benchmarks.routing_algorithms import Workload, algorithms, as_markdown, matchings, thresholds
from palio.language.parsing import parse_advertisement, parse_filter
from palio.matching import warming
from palio.model.advertisements import Advertisement
from palio.model.filters import Conjunction, Constraint, Filter
from palio.model.relations import overlaps
from palio.routing.acyclic import Acyclic
from palio.routing.forwarding import Forwarding
from palio.routing.general import General
from palio.routing.messages import Subscribe
from palio.routing.overlap_index import OverlapIndex
from palio.routing.protocol import Peer
from palio.server.limits import GC_THRESHOLDS
from palio.simulation import Randomness, random_tree
from palio_studies.simulator import Network

Row = dict[str, Any]

BROKERS: Final = 20
MATCHED: Final = 10_000
"""Filters that each matching has by itself."""
BEGIN: Final = "<!-- measured: python -m benchmarks.routing --docs docs/measured -->"
SHORT: Final = ("algorithms", "matchings")


def mixed(count: int, seed: int) -> list[Filter]:
    """3 to 5 of 20 attributes drawn Zipf(1); 40% <=, 40% >=, 20% =."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, 21)
    filters = []
    for _ in range(count):
        names = rng.choice(20, int(rng.integers(3, 6)), replace=False, p=weights / weights.sum())
        parts = []
        for name in names:
            kind, share = rng.random(), 0.5 * rng.random()
            op = "<=" if kind < 0.4 else ">=" if kind < 0.8 else "="
            low, any_ = int(1000 * share), int(rng.integers(1000))
            bound = {"<=": low, ">=": 1000 - low, "=": any_}[op]
            parts.append(Constraint.of(f"a{name}", op, bound))
        filters.append(Filter.of([Conjunction.of(parts)]))
    return filters


def tenth_roots(count: int, seed: int) -> list[Filter]:
    """A tenth cover the rest: one root a symbol, the others narrower, in random order."""
    rng = np.random.default_rng(seed)
    roots = count // 10
    filters = [_quote(symbol, 1000, None) for symbol in range(roots)]
    for _ in range(count - roots):
        symbol, price = int(rng.integers(roots)), int(rng.integers(1, 1000))
        filters.append(_quote(symbol, price, int(rng.integers(100_000))))
    return [filters[place] for place in rng.permutation(count)]


def _quote(symbol: int, price: int, volume: int | None) -> Filter:
    parts = [
        Constraint.of("symbol", "=", f"s{symbol:06d}"),
        Constraint.of("price", "<=", price),
    ]
    if volume is not None:
        parts.append(Constraint.of("volume", ">=", volume))
    return Filter.of([Conjunction.of(parts)])


def index(size: int) -> list[Row]:
    """Insert and remove filters one by one in the table of a broker with two neighbours."""
    warming.warm()  # as a broker does
    gc.set_threshold(*GC_THRESHOLDS)
    found = []
    for name, workload in (("mixed", mixed), ("tenth roots", tenth_roots)):
        filters = list(dict.fromkeys(workload(size, 1)))
        table = Forwarding()
        for neighbour in ("n1", "n2"):
            table.connect(Peer.broker(neighbour))
        alice = Peer.client("alice")
        start = process_time()
        for each in filters:
            table.add(alice, each)
            table.changes()
        inserted = process_time()
        roots = len(table.sent(Peer.broker("n1")))
        for each in filters:
            table.remove(alice, each)
            table.changes()
        removed = process_time()
        found.append(
            {
                "workload": name,
                "filters": len(filters),
                "roots": roots,
                "inserts_per_s": round(len(filters) / (inserted - start)),
                "removes_per_s": round(len(filters) / (removed - inserted)),
            }
        )
    return found


def offers(count: int, width: int, seed: int) -> list[Advertisement]:
    """8 of the 20 attributes of `mixed`, each with a part of the values there are."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        tests = []
        for name in rng.choice(20, 8, replace=False):
            low = int(rng.integers(1001 - width))
            tests.append(f"a{name} BETWEEN {low} AND {low + width}")
        found.append(parse_advertisement(" AND ".join(tests)))
    return found


OFFERED_TEXTS: Final = (
    "title CONTAINS 'news'",
    "title = 'the w77 of w1234'",
    f"title IN ({', '.join(repr(f'a w{7 * n}') for n in range(100))})",
    "title NOT CONTAINS 'w5'",
)
"""Offers among filters of texts."""


def overlap(size: int) -> list[Row]:
    """One more advertisement among filters, one more filter among 1,000 advertisements; what asking
    about every pair takes is measured on a fiftieth of the pairs.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    filters = list(dict.fromkeys(mixed(size, 1)))
    everything = parse_advertisement(" AND ".join(f"a{name} IS NOT NULL" for name in range(20)))
    hub = Peer.broker("hub")
    found = []
    for asked, advertisements in (
        ("narrow offer", offers(40, 100, 2)),
        ("wide offer", offers(40, 900, 3)),
        ("offer of all", [everything]),
    ):
        table = OverlapIndex()
        for filter in filters:
            table.towards(filter)
        spent, drawn = [], []
        for place in range(len(advertisements)):
            start = process_time()
            drawn.append(len(table.set_offers(hub, advertisements[: place + 1])))
            spent.append(process_time() - start)
        start = process_time()
        for filter in filters[: size // 50]:
            overlaps(advertisements[0], filter)
        found.append(_asked(asked, spent, 50 * (process_time() - start), sum(drawn)))
    found += [_among_texts(size, text) for text in OFFERED_TEXTS]
    table = OverlapIndex()
    known = offers(1000, 100, 4)
    table.set_offers(hub, known)
    spent, reached = [], 0
    for filter in mixed(2000, 5):
        start = process_time()
        reached += len(table.towards(filter))
        spent.append(process_time() - start)
    start = process_time()
    for advertisement in known:
        overlaps(advertisement, filters[0])
    scan = process_time() - start
    return [*found, _asked("filter", spent, scan, reached)]


def _among_texts(size: int, text: str) -> Row:
    """The same among filters that each look for a word of their own."""
    filters = [parse_filter(f"title CONTAINS 'w{n}' AND price < {n}") for n in range(size)]
    table, offer = OverlapIndex(), parse_advertisement(f"{text} AND EXISTS price")
    for filter in filters:
        table.towards(filter)
    spent, reached = [], 0
    for name in range(5):
        start = process_time()
        reached = len(table.set_offers(Peer.broker(f"n{name}"), [offer]))
        spent.append(process_time() - start)
    start = process_time()
    for filter in filters[: size // 50]:
        overlaps(offer, filter)
    return _asked(f"offer of {text:.30}", spent, 50 * (process_time() - start), reached)


def _asked(asked: str, spent: list[float], scan: float, found: int) -> Row:
    return {
        "new": asked,
        "median_ms": round(1000 * float(np.median(spent)), 2),
        "most_ms": round(1000 * max(spent), 2),
        "scan_ms": round(1000 * scan),
        "found": found,
    }


def steps(size: int) -> list[Row]:
    """Router message-steps a second, control and notifications mixed half and half."""
    found = []
    for name, routing in (("acyclic", Acyclic), ("general", General)):
        random = Randomness(4)
        network = Network.of(random_tree(BROKERS, random), routing, seed=4)
        network.run()
        clients = [
            network.client(f"c{n}", random.choice(list(network.routers))) for n in range(100)
        ]
        keys = [
            client.subscribe(
                f"symbol = 's{random.below(20)}' AND price < :x", {"x": random.below(100)}
            )
            for client in clients
        ]
        network.run()
        before, start = network.costs.steps, process_time()
        for _ in range(size // 20):
            place = random.below(len(clients))
            clients[place].update(keys[place], x=random.below(100))
            event = {"symbol": f"s{random.below(20)}", "price": random.below(100)}
            random.choice(clients).publish(event)
            network.run(network.now_ms + 1)
        network.run()
        spent = process_time() - start
        done = network.costs.steps - before
        found.append({"routing": name, "steps": done, "steps_per_s": round(done / spent)})
    return found


def settle(size: int) -> list[Row]:
    """Subscriptions, a tenth of them roots, until all is quiet; batches of 50, a client each."""
    filters = tenth_roots(size, 3)
    network = Network.of(random_tree(BROKERS, Randomness(5)), Acyclic, seed=1)
    network.run()
    start = process_time()
    for number in range(0, size, 50):
        client = network.client(f"c{number}", f"b{number // 50 % BROKERS + 1}")
        requests = (Subscribe(k, each) for k, each in enumerate(filters[number : number + 50]))
        client.request(*requests)
    network.run()
    costs = network.costs
    return [
        {
            "subscriptions": size,
            "seconds": round(process_time() - start, 1),
            "messages": costs.batches,
            "subscribes": costs.subscribes,
            "updates": costs.updates,
            "unsubscribes": costs.unsubscribes,
        }
    ]


def every_algorithm(size: int) -> list[Row]:  # noqa: ARG001  # a part
    """Each algorithm in one scenario."""
    return algorithms()


def every_matching(size: int) -> list[Row]:
    """Each matching by itself, on filters of little, some and much covering."""
    count = min(size, MATCHED)
    return matchings(
        [
            Workload("mixed", mixed(count, 1), _any_event),
            Workload("with tenth roots", tenth_roots(count, 1), partial(_quoted, count // 10)),
            Workload("in one chain", thresholds(count), partial(_single, count)),
        ]
    )


def _any_event(rng: np.random.Generator) -> dict[str, Any]:
    return {f"a{name}": int(rng.integers(1000)) for name in range(20)}


def _quoted(symbols: int, rng: np.random.Generator) -> dict[str, Any]:
    symbol = f"s{int(rng.integers(symbols)):06d}"
    price, volume = int(rng.integers(1000)), int(rng.integers(100_000))
    return {"symbol": symbol, "price": price, "volume": volume}


def _single(most: int, rng: np.random.Generator) -> dict[str, Any]:
    return {"a": int(rng.integers(most))}


PARTS: Final = {
    "algorithms": every_algorithm,
    "matchings": every_matching,
    "index": index,
    "overlap": overlap,
    "steps": steps,
    "settle": settle,
}


def show(name: str, rows: list[Row]) -> None:
    wide = {each: max(len(str(row[each])) for row in [*rows, {each: each}]) for each in rows[0]}
    print(f"\n{name}")
    for row in [{each: each for each in wide}, *rows]:
        print("  ".join(f"{row[each]!s:>{width}}" for each, width in wide.items()), flush=True)


def renew(results: dict[str, list[Row]], folder: Path) -> None:
    """Put what ran in place of its like in routing.json and in the tables."""
    page = folder / "routing.json"
    known = (json.loads(page.read_text()) if page.exists() else {}) | results
    page.write_text(json.dumps(known, indent=1) + "\n")
    if known.keys() >= set(SHORT):
        tables = "\n\n".join(as_markdown(known[name]) for name in SHORT)
        replace(tables, folder / "routing.md", BEGIN)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--only", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--full", action="store_true", help="all parts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--docs", type=Path, help="renew what was measured in a folder")
    options = parser.parse_args()
    usual = PARTS if options.full else SHORT
    results: dict[str, list[Row]] = {}
    for name in options.only.split(",") if options.only else usual:
        found = {name: PARTS[name](options.size)}
        results |= found
        if not options.json:
            for part, rows in found.items():
                show(part, rows)
    if options.docs is not None:
        renew(results, options.docs)
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
