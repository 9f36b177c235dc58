"""How Parallax proves who it is to brokers and to the store, and how it knows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from parallax.config.secret import Secret, check_given_once, read_secret
from parallax.config.values import Section, is_loopback

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
"""How Kafka's clients speak to a listener."""

SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"]
"""How Parallax proves who it is: by a password, a token of an issuer, a token signed with AWS's keys, a Kerberos ticket."""

_BY_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _endpoint(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{text!r} is no address that begins with https://")
    if parts.scheme == "http" and not is_loopback(f"{parts.hostname}:0"):
        raise ValueError(f"{text!r}: the client's secret would be readable on the way; use https")
    return text


class OAuth(Section):
    """Where tokens come from: OAuth 2.0's client credentials grant (RFC 6749, 4.4)."""

    token_endpoint: Annotated[str, AfterValidator(_endpoint)]
    client_id: Annotated[str, Field(min_length=1)]
    client_secret: Secret | None = None
    client_secret_file: str | None = None
    scope: str | None = None
    ca_location: str | None = None
    """PEM file of the authorities that sign the endpoint's certificate; None: those of the system."""
    extensions: Mapping[str, str] = Field(default_factory=dict)
    """What brokers want to know besides the token (KIP-342)."""

    @model_validator(mode="after")
    def _has_a_secret(self) -> OAuth:
        check_given_once(self)
        if self.client_secret is None and self.client_secret_file is None:
            raise ValueError("set client_secret_file (or client_secret)")
        return self

    def secret(self) -> str:
        """The client's secret, as it is now.

        Raises:
            ConfigError: its file can't be read.
        """
        return read_secret(self.client_secret, self.client_secret_file, "sasl_oauth.client_secret") or ""


class Security(Section):
    """How to authenticate at a cluster, in Kafka's own words."""

    protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: SaslMechanism | None = None
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    sasl_password_file: str | None = None
    sasl_oauth: OAuth | None = None
    """For OAUTHBEARER."""
    sasl_aws_region: str | None = None
    """For AWS_MSK_IAM."""
    sasl_kerberos_service_name: str = "kafka"
    """For GSSAPI: the first part of the brokers' principal."""
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: Secret | None = None
    ssl_key_password_file: str | None = None
    ssl_verify_hostname: bool = True

    @model_validator(mode="after")
    def _is_whole(self) -> Security:
        check_given_once(self)
        if not self.protocol.startswith("SASL"):
            return self
        if self.sasl_mechanism is None:
            raise ValueError(f"protocol {self.protocol} needs a sasl_mechanism")
        if self.sasl_mechanism in _BY_PASSWORD:
            if self.sasl_username is None:
                raise ValueError(f"{self.sasl_mechanism} needs a sasl_username")
            if self.sasl_password is None and self.sasl_password_file is None:
                raise ValueError(f"{self.sasl_mechanism} needs a sasl_password_file (or sasl_password)")
        if self.sasl_mechanism == "OAUTHBEARER" and self.sasl_oauth is None:
            raise ValueError("OAUTHBEARER needs a section sasl_oauth that says where tokens come from")
        if self.sasl_mechanism == "AWS_MSK_IAM":
            if self.sasl_aws_region is None:
                raise ValueError("AWS_MSK_IAM needs a sasl_aws_region")
            if self.protocol != "SASL_SSL":
                raise ValueError("AWS_MSK_IAM needs protocol SASL_SSL: whoever reads a token may use it")
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


class StoreTls(Section):
    """TLS to Cassandra; an empty section trusts the system's authorities and shows no certificate."""

    ca: str | None = None
    """PEM file of the authorities that sign the nodes' certificates; None: those of the system."""
    certificate: str | None = None
    """PEM file of our own, where nodes ask for one."""
    key: str | None = None
    """PEM file of the key to it; None: it is in the certificate's file."""
    key_password: Secret | None = None
    key_password_file: str | None = None
    verify_hostname: bool = True
    """Nodes' certificates must name the address that they are reached at."""

    @model_validator(mode="after")
    def _fits(self) -> StoreTls:
        check_given_once(self)
        if self.key is not None and self.certificate is None:
            raise ValueError("a key without a certificate proves nothing: set certificate too")
        return self

    def open_key(self) -> str | None:
        """What opens the key, as it is now.

        Raises:
            ConfigError: its file can't be read.
        """
        return read_secret(self.key_password, self.key_password_file, "cassandra.tls.key_password")
