"""A member of a group as a program: `python member_process.py JSON`; prints what it is delivered, a line per record.

A line is handed to the operating system before the next record is asked for: who kills the program has delivered
what was printed and nothing else.
"""

from __future__ import annotations

import json
import sys

import structlog

from parallax import FailoverConsumer


def main() -> None:
    """Consume until killed."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    told = json.loads(sys.argv[1])
    consumer = FailoverConsumer(**told["settings"], follow_primary=True)
    consumer.subscribe(told["topics"])
    while True:
        lines = [
            f"{message.topic()} {message.partition()} {message.offset()} {(message.value() or b'').decode()}\n"
            for message in consumer.consume(500, 0.1)
            if message.error() is None
        ]
        sys.stdout.writelines(lines)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
