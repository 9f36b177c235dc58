"""The processes of the workload: `python -m lab.workload produce|consume|failover ...`.

Each is started by a `lab.workload.worker.Worker`, talks JSON lines with it, and ends when it is gone.
"""

from __future__ import annotations

import argparse
import faulthandler
import signal
import sys
from pathlib import Path

from lab.workload.channel import TELL_STACKS, Channel
from lab.workload.consuming import ConsumeError
from lab.workload.plain import consume_plainly
from lab.workload.plan import Plan
from lab.workload.producer import ProduceError, produce


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m lab.workload", description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--topic", required=True)
    producing = roles.add_parser("produce", parents=[common])
    producing.add_argument("--bootstrap-servers", required=True)
    producing.add_argument("--region", required=True)
    producing.add_argument("--plan", required=True, type=Plan.from_json)
    producing.add_argument("--acked", type=Path)
    reading = argparse.ArgumentParser(add_help=False)
    reading.add_argument("--group", required=True)
    reading.add_argument("--log", required=True, type=Path)
    reading.add_argument("--per-s", type=float)
    plain = roles.add_parser("consume", parents=[common, reading])
    plain.add_argument("--bootstrap-servers", required=True)
    plain.add_argument("--cluster", required=True)
    plain.add_argument("--stage", type=int, default=0)
    plain.add_argument("--offset-reset", choices=["earliest", "latest", "error"], default="earliest")
    failover = roles.add_parser("failover", parents=[common, reading])
    failover.add_argument("--config", required=True, type=Path)
    failover.add_argument("--region", required=True)
    return parser.parse_args()


def main() -> int:
    """Run one role; returns the exit code."""
    # Ctrl-C in a terminal reaches the parent, which ends its children in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.register(TELL_STACKS)
    arguments = _arguments()
    channel = Channel()
    try:
        if arguments.role == "produce":
            produce(
                bootstrap_servers=arguments.bootstrap_servers,
                topic=arguments.topic,
                region=arguments.region,
                plan=arguments.plan,
                channel=channel,
                acked=arguments.acked,
            )
        elif arguments.role == "consume":
            consume_plainly(
                bootstrap_servers=arguments.bootstrap_servers,
                cluster=arguments.cluster,
                group=arguments.group,
                topic=arguments.topic,
                log=arguments.log,
                stage=arguments.stage,
                offset_reset=arguments.offset_reset,
                per_s=arguments.per_s,
                channel=channel,
            )
        else:
            # A plain consumer shall not wait for what only this one needs.
            from lab.workload.failover import consume_with_failover  # noqa: PLC0415

            consume_with_failover(
                config=arguments.config,
                region=arguments.region,
                group=arguments.group,
                topic=arguments.topic,
                log=arguments.log,
                per_s=arguments.per_s,
                channel=channel,
            )
    except (ProduceError, ConsumeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
