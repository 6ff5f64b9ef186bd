"""Cabs near somebody who walks: a subscription whose centre moves, over three brokers.

    python examples/nearby.py

The distance is an expression over attributes. Its centre is two parameters, so each step is one
short message from broker to broker, however long the filter is.
"""

from __future__ import annotations

import palio.testing

NEAR = "kind = 'cab' AND SQRT((x - :x) * (x - :x) + (y - :y) * (y - :y)) < :radius"

CABS = {"ann": (1, 1), "bob": (4, 2), "cleo": (9, 2), "dan": (10, -1)}


async def walk(steps: int = 11) -> dict[int, list[str]]:
    """The cabs that are seen from each place on the way east."""
    seen: dict[int, list[str]] = {}
    async with palio.testing.Network("line:3") as net:
        walker, town = await net.connect("b1", name="walker"), await net.connect("b3", name="town")
        near = await walker.subscribe(NEAR, {"x": 0, "y": 0, "radius": 3})
        for place in range(steps):
            await near.update(x=place)
            await near.settled()  # all brokers know where the walker is
            for name, (x, y) in CABS.items():
                await town.publish({"kind": "cab", "name": name, "x": x, "y": y})
            await town.publish({"kind": "cab", "name": "", "x": place, "y": 0})  # the last one here
            seen[place] = []
            while name := (await near.receive())["name"]:
                seen[place].append(name)
    return seen


def main() -> None:
    for place, names in palio.testing.run(walk()).items():
        print(f"{place:2d} km: {', '.join(names) or 'none'}")


if __name__ == "__main__":
    main()
