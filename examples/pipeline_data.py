"""Orders and subscriptions for pipeline.toml: the same ones every time."""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

ORDERS = 5_000
CUSTOMERS = 200
COUNTRIES = ("AT", "DE", "FR", "IT", "PT")


def main() -> None:
    data = Path(__file__).parent / "data"
    data.mkdir(exist_ok=True)
    draw = random.Random(6)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with (data / "orders.jsonl").open("w", encoding="utf-8") as file:
        for number in range(ORDERS):
            order = {
                "customer": draw.randrange(CUSTOMERS),
                "total": round(draw.lognormvariate(4, 1), 2),
                "country": draw.choice(COUNTRIES),
            }
            event = {
                "id": str(number),
                "source": "/shop",
                "type": "order.created",
                "time": (start + timedelta(seconds=30 * number)).isoformat(),
                "data": json.dumps(order),
            }
            file.write(json.dumps(event) + "\n")
    with (data / "order_subscriptions.jsonl").open("w", encoding="utf-8") as file:
        for number, country in enumerate(COUNTRIES):
            wanted = {
                "id": number,
                "subscriber": f"office-{country}",
                "filter": "country = :country AND total > :limit",
                "parameters": {"country": country, "limit": 100 * number},
            }
            file.write(json.dumps(wanted) + "\n")
        never = {"id": 99, "subscriber": "audit", "filter": "total < 0"}
        file.write(json.dumps(never) + "\n")
    print(f"{ORDERS:,} orders and {len(COUNTRIES) + 1} subscriptions are in {data}")


if __name__ == "__main__":
    main()
