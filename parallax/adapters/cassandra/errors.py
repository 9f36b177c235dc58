"""The driver's errors as ours, by one table."""

from __future__ import annotations

import cassandra
from cassandra import cluster, connection, pool, protocol, query

from parallax.errors import ConfigError, ParallaxError, StoreUnavailableError

BY_TYPE: dict[type[Exception], type[ParallaxError]] = {
    # The store could not serve the call now.
    cassandra.CDCWriteFailure: StoreUnavailableError,
    cassandra.CoordinationFailure: StoreUnavailableError,
    cassandra.DriverException: StoreUnavailableError,
    cassandra.OperationTimedOut: StoreUnavailableError,
    cassandra.ReadFailure: StoreUnavailableError,
    cassandra.ReadTimeout: StoreUnavailableError,
    cassandra.RequestExecutionException: StoreUnavailableError,
    cassandra.Timeout: StoreUnavailableError,
    cassandra.Unavailable: StoreUnavailableError,
    cassandra.UnresolvableContactPoints: StoreUnavailableError,
    cassandra.WriteFailure: StoreUnavailableError,
    cassandra.WriteTimeout: StoreUnavailableError,
    cluster.NoHostAvailable: StoreUnavailableError,
    cluster.QueryExhausted: StoreUnavailableError,
    connection.ConnectionBusy: StoreUnavailableError,
    connection.ConnectionException: StoreUnavailableError,
    connection.ConnectionShutdown: StoreUnavailableError,
    connection.CrcMismatchException: StoreUnavailableError,
    connection.ProtocolError: StoreUnavailableError,
    pool.NoConnectionsAvailable: StoreUnavailableError,
    protocol.ErrorMessage: StoreUnavailableError,
    query.TraceUnavailable: StoreUnavailableError,
    OSError: StoreUnavailableError,
    # It will never serve the call as it is: its schema, settings or rights are not what this program needs.
    cassandra.AlreadyExists: ConfigError,
    cassandra.AuthenticationFailed: ConfigError,
    cassandra.ConfigurationException: ConfigError,
    cassandra.DependencyException: ConfigError,
    cassandra.FunctionFailure: ConfigError,
    cassandra.InvalidRequest: ConfigError,
    cassandra.RequestValidationException: ConfigError,
    cassandra.Unauthorized: ConfigError,
    cassandra.UnsupportedOperation: ConfigError,
    cluster.UserTypeDoesNotExist: ConfigError,
    connection.ProtocolVersionUnsupported: ConfigError,
    protocol.InternalError: ConfigError,
    protocol.NotSupportedError: ConfigError,
    protocol.SyntaxException: ConfigError,
}
"""What an error of the driver means; the nearest class counts."""

FOREIGN = (*BY_TYPE,)
"""What to catch around a call of the driver."""


def translated(error: Exception, doing: str) -> ParallaxError:
    """The error to raise for one of the driver's: says what was tried and what came back."""
    kind = next((BY_TYPE[base] for base in type(error).__mro__ if base in BY_TYPE), StoreUnavailableError)
    if isinstance(error, cluster.NoHostAvailable) and any(
        isinstance(reason, cassandra.AuthenticationFailed) for reason in _reasons(error)
    ):
        kind = ConfigError
    return kind(f"store: {doing}: {type(error).__name__}: {error}")


def _reasons(error: cluster.NoHostAvailable) -> list[object]:
    reasons = error.errors
    return list(reasons.values()) if isinstance(reasons, dict) else []
