"""`parallax console`: the web console of a region."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import ExitStack
from typing import Annotated
from urllib.parse import urlsplit

import structlog
import typer

from console.app import create_app
from console.issuer import Issuer
from console.people import Entrance, OpenEntrance, ProxyEntrance
from console.signing_in import SignInDoor
from console.web import LOOPBACK_NAMES
from parallax.adapters.http.server import HttpServer
from parallax.cli.options import ConfigOption, JsonLogsOption
from parallax.cli.output import print_json
from parallax.client.client import OffsetClient
from parallax.client.credentials import credentials_of
from parallax.config.config import Config, ServiceAddresses, Tls, load
from parallax.config.console import ConsoleSettings
from parallax.config.values import is_loopback
from parallax.domain.ids import RegionName
from parallax.errors import ConfigError
from parallax.identity.door import Door
from parallax.identity.identity import Identity
from parallax.runtime.process import configure_logging, spare_present_objects, stop_on_signals
from parallax.wiring import client_credentials

_log = structlog.get_logger(__name__)

DEFAULT_ADDRESS = "127.0.0.1:7680"
_TIMEOUT_MS = 5_000
"""Of a question with its retries: whoever looks at a page would rather know that there is no answer."""


def console(
    config: ConfigOption,
    region: Annotated[str, typer.Option("--region", help="The region whose offset service is asked first.")],
    listen: Annotated[
        str,
        typer.Option(
            "--listen",
            help="host:port; port 0 takes a free one. On loopback alone, unless console.auth asks who looks, over console.tls.",
        ),
    ] = DEFAULT_ADDRESS,
    as_json: JsonLogsOption = False,
) -> None:
    """Show what the offset services know as pages, and move groups there, until stopped (`console` in the configuration: who may)."""
    configure_logging(json=as_json)
    settings = load(config)
    stop = threading.Event()
    stop_on_signals(stop)
    with ExitStack() as stack:
        address = start(settings, RegionName(region), listen, stack)
        spare_present_objects()
        if as_json:
            print_json({"console": address}, indent=None)
        else:
            sys.stdout.write(f"console={address}\n")
            sys.stdout.flush()
        _log.info("console_serving", region=region, address=address)
        stop.wait()
        _log.info("console_ended", region=region)


def start(settings: Config, region: RegionName, listen: str, stack: ExitStack) -> str:
    """Build the console of a region and start its server; the stack stops it again.

    Returns:
        Its URL.

    Raises:
        ConfigError: the address can't be used, or others than this machine reach it.
        UnknownRegionError: there is no such region.
    """
    require_private(settings.console, listen)
    client = stack.enter_context(
        OffsetClient(
            _targets(settings, region),
            timeout_ms=_TIMEOUT_MS,
            credentials=credentials_of(os.environ, client_credentials(settings)),
        )
    )
    host = listen.rpartition(":")[0]
    own = settings.console
    proxied = {name.lower() for name in own.hosts}
    metrics_door = None
    if own.auth.oidc is not None:
        proxied.add(urlsplit(own.auth.oidc.url).hostname or "")
        if settings.service.auth.mode == "jwt":
            metrics_door = Door(Identity(settings.service.auth))
    app = create_app(
        client,
        region=region,
        hosts=LOOPBACK_NAMES | {host.lower()} | proxied,
        door=door_of(own),
        proxied=proxied,
        metrics_door=metrics_door,
    )
    tls = None if own.tls is None else Tls(**own.tls.model_dump())
    server = HttpServer(app, address=listen, tls=tls, name="console")
    server.start()
    stack.callback(server.stop)
    return f"{'http' if tls is None else 'https'}://{host}:{server.port}"


def door_of(own: ConsoleSettings) -> Entrance:
    """The door that a configuration wants.

    Raises:
        ConfigError: a file that it names can't be read.
    """
    auth = own.auth
    if auth.oidc is not None:
        return SignInDoor(auth.oidc, auth.roles, Issuer(auth.oidc))
    return OpenEntrance(own.role) if auth.proxy is None else ProxyEntrance(auth.proxy, auth.roles)


def require_private(own: ConsoleSettings, listen: str) -> None:
    """Refuse to listen where strangers could look, or say in a proxy's name who looks.

    Raises:
        ConfigError: they could.
    """
    if is_loopback(listen):
        return
    if own.auth.mode == "none":
        raise ConfigError(
            f"--listen {listen}: others than this machine reach it, and the console asks nobody who looks; listen on "
            "127.0.0.1, and reach it through ssh -L or the like, or set console.auth"
        )
    if own.tls is not None:
        return
    problem = "who looks would cross the network in plain text (there is no console.tls), and whoever is on the way could be an admin"
    if not own.auth.insecure:
        raise ConfigError(
            f"--listen {listen}: {problem}; set console.tls, or console.auth.insecure: true if you want it so"
        )
    _log.warning("insecure", addresses=[listen], problem=problem)


def _targets(settings: Config, region: RegionName) -> list[str]:
    """The region's own service, then the others."""
    own = (settings.region(region).offsetsvc or ServiceAddresses()).grpc
    others = [service.grpc for service in settings.offset_services().values()]
    return list(dict.fromkeys([own, *others]))
