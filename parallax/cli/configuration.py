"""`parallax config`: what holds, with secrets masked, whether it can be used, and what it may say."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
import yaml

from parallax.cli.choosing import Row
from parallax.cli.connecting import connect
from parallax.cli.options import (
    TIMEOUT_MS,
    AuthorityOption,
    ConfigOption,
    JsonOption,
    ServiceOption,
    ServicesConfigOption,
    TimeoutOption,
)
from parallax.cli.output import print_json
from parallax.cli.rows import ListColumn, OutputFormat, OutputOption, RowListing, output_of
from parallax.config.config import load
from parallax.config.json_schema import json_schema
from parallax.config.settings import nested, settings_of
from parallax.errors import ConfigError

app = typer.Typer(help="Show or check a configuration, or what one may say.", no_args_is_help=True)

_SETTINGS = RowListing(
    [
        ListColumn("~key", lambda row: row["key"]),
        ListColumn("~value", lambda row: json.dumps(row["value"])),
        ListColumn("given", lambda row: "yes" if row["given"] else "default"),
    ],
    lambda row: row["key"],
    "no key begins so",
)


@app.command()
def view(
    prefix: Annotated[str, typer.Argument(help="Keys that begin so, such as service. Default: all.")] = "",
    of_service: Annotated[
        bool,
        typer.Option("--of-service", help="That of the offset service that answers, instead of this file's."),
    ] = False,
    defaults: Annotated[bool, typer.Option("--defaults", help="With what nobody has set, too.")] = False,
    output: OutputOption = OutputFormat.YAML,
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    as_json: JsonOption = False,
) -> None:
    """Show what a configuration says, the environment's variables included. Secrets are masked."""
    chosen = output_of(output, as_json=as_json)
    if of_service or service:
        with connect(config, service, tls_ca, timeout_ms) as client:
            answer = client.describe_configuration(prefix=prefix)
        rows: list[Row] = [
            {"key": item.key, "value": json.loads(item.value), "secret": item.secret, "given": item.given}
            for item in answer.settings
            if item.given or defaults
        ]
    elif config is None:
        raise ConfigError("name a configuration with --config (or PARALLAX_CONFIG), or --service host:port")
    else:
        settings = [item for item in settings_of(load(config)) if item.key.startswith(prefix)]
        if chosen in {OutputFormat.YAML, OutputFormat.JSON}:  # as a file has them
            values = nested(settings, defaults=defaults)
            text = json.dumps(values, indent=2) + "\n"
            if chosen is OutputFormat.YAML:
                text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
            sys.stdout.write(text)
            return
        rows = [
            {"key": item.key, "value": item.value, "secret": item.secret, "given": item.given}
            for item in settings
            if item.given or defaults
        ]
    _SETTINGS.write(rows, chosen)


@app.command()
def check(config: ConfigOption, as_json: JsonOption = False) -> None:
    """Check a configuration file, and what the environment adds to it. Exit code 1: it can't be used."""
    settings = load(config)
    routes, regions = len(settings.all_routes()), len(settings.regions)
    if as_json:
        sys.stdout.write(json.dumps({"ok": True, "regions": regions, "routes": routes}) + "\n")
    else:
        sys.stdout.write(f"{config}: can be used: {regions} regions, {routes} routes\n")


@app.command()
def schema() -> None:
    """Print the JSON schema of configuration files: every key with its kind, default and bounds. Editors complete keys by it."""
    print_json(json_schema())
