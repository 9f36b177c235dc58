"""A topic and a group of one's own on a local stack (docs/tutorial.md).

PARALLAX_CONFIG=build/demo/stack/parallax.yaml python docs/examples/parcels.py produce 300
PARALLAX_CONFIG=build/demo/stack/parallax.yaml python docs/examples/parcels.py consume
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

import yaml
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from parallax import FailoverConsumer

TOPIC, GROUP = "parcels", "my-group"
regions = yaml.safe_load(Path(os.environ["PARALLAX_CONFIG"]).read_text(encoding="utf-8"))["regions"]


def produce(count: int) -> None:
    """So many records in each region, to the region's own cluster."""
    for name, region in regions.items():
        settings = {"bootstrap.servers": region["regional"]["bootstrap_servers"], "log_level": 3}
        admin = AdminClient(settings)
        error = admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].exception()
        if error is not None and error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise error
        producer = Producer(settings)
        for number in range(count):
            producer.produce(TOPIC, f"parcel {number} of region {name}", key=str(number))
        producer.flush()
    print(f"{count} records in each of {', '.join(regions)}")


def consume() -> None:
    """Follow the group's primary, until interrupted; the log tells of every move."""
    consumer = FailoverConsumer(
        {"group.id": GROUP},
        clusters={name: region["aggregate"]["bootstrap_servers"] for name, region in regions.items()},
        region=next(iter(regions)),
        services=[region["offsetsvc"]["grpc"] for region in regions.values()],
        follow_primary=True,
    )
    consumer.subscribe([TOPIC])
    read = 0
    with consumer, suppress(KeyboardInterrupt):
        while True:
            message = consumer.poll(1.0)
            if message is None or message.error() is not None:
                continue
            read += 1
            if read % 100 == 0:
                print(f"{read} records read, the last one in {consumer.region}", flush=True)


if __name__ == "__main__":
    produce(int(sys.argv[2])) if sys.argv[1] == "produce" else consume()
