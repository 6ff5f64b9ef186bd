"""The systems that `benchmarks.peers` compares, in the order of its table."""

from __future__ import annotations

from typing import Final

from benchmarks.peer_systems.activemq import ActiveMQ
from benchmarks.peer_systems.echo import Echo
from benchmarks.peer_systems.mosquitto import Mosquitto
from benchmarks.peer_systems.nats import Nats
from benchmarks.peer_systems.palio import Palio
from benchmarks.peer_systems.rabbitmq import RabbitMQ
from benchmarks.peer_systems.redis import Redis
from benchmarks.peer_systems.system import System

SYSTEMS: Final[dict[str, type[System]]] = {
    "echo": Echo,
    "palio": Palio,
    "nats": Nats,
    "activemq": ActiveMQ,
    "mosquitto": Mosquitto,
    "redis": Redis,
    "rabbitmq": RabbitMQ,
}
