"""librdkafka settings from a cluster's configuration."""

from __future__ import annotations

from parallax.config.config import Cluster

Settings = dict[str, str | int | float | bool]


def client_settings(cluster: Cluster, *, client_id: str) -> Settings:
    """Address and security of a cluster, in librdkafka's names."""
    security = cluster.security
    settings: Settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "client.id": client_id,
        "security.protocol": security.protocol,
        # What a call could not do is raised by the call; librdkafka's own lines on stderr add nothing.
        "log_level": 2,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "socket.connection.setup.timeout.ms": 5_000,
    }
    optional = {
        "sasl.mechanism": security.sasl_mechanism,
        "sasl.username": security.sasl_username,
        "sasl.password": security.sasl_password.get_secret_value() if security.sasl_password else None,
        "ssl.ca.location": security.ssl_ca_location,
        "ssl.certificate.location": security.ssl_certificate_location,
        "ssl.key.location": security.ssl_key_location,
        "ssl.key.password": security.ssl_key_password.get_secret_value()
        if security.ssl_key_password
        else None,
    }
    settings.update({key: value for key, value in optional.items() if value is not None})
    return settings
