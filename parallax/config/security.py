"""How Parallax proves who it is to brokers, and how it knows them."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from parallax.config.secret import Secret, check_given_once, read_secret
from parallax.config.values import Section

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
"""How Kafka's clients speak to a listener."""

SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
"""How Parallax proves who it is: by a name and a password."""


class Security(Section):
    """How to authenticate at a cluster, in Kafka's own words."""

    protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    sasl_password_file: str | None = None
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: Secret | None = None
    ssl_key_password_file: str | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Security:
        check_given_once(self)
        if not self.protocol.startswith("SASL"):
            return self
        if self.sasl_mechanism is None:
            raise ValueError(f"protocol {self.protocol} needs a sasl_mechanism")
        if self.sasl_username is None:
            raise ValueError(f"{self.sasl_mechanism} needs a sasl_username")
        if self.sasl_password is None and self.sasl_password_file is None:
            raise ValueError(f"{self.sasl_mechanism} needs a sasl_password_file (or sasl_password)")
        return self

    def password(self) -> str | None:
        """The password, as it is now.

        Raises:
            ConfigError: its file can't be read.
        """
        return read_secret(self.sasl_password, self.sasl_password_file, "security.sasl_password")

    def key_password(self) -> str | None:
        """What opens the key, as it is now.

        Raises:
            ConfigError: its file can't be read.
        """
        return read_secret(self.ssl_key_password, self.ssl_key_password_file, "security.ssl_key_password")
