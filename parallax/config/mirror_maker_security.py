"""How MirrorMaker 2 proves who it is at a cluster, as the configuration here says it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parallax.config.mirror_maker_keys import KeyVerdict, Ruling
from parallax.config.properties import LoginModule, read_login_module

_MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"}
_PROTOCOLS = {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
_MSK_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")
_FILE_OF = "/run/secrets/{region}-{name}"

_SAME = {
    "security.protocol": "protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
}
_IMPLIED = {
    "ssl.truststore.password": "PEM files of authorities need none",
    "ssl.truststore.type": "files are PEM",
    "ssl.keystore.type": "files are PEM",
    "sasl.client.callback.handler.class": "Parallax signs tokens for MSK itself",
    "sasl.login.callback.handler.class": "Parallax fetches tokens itself",
    "sasl.login.class": "Parallax fetches tokens itself",
    "ssl.keymanager.algorithm": "OpenSSL has no such choice",
    "ssl.trustmanager.algorithm": "OpenSSL has no such choice",
    "ssl.provider": "OpenSSL has no such choice",
    "ssl.secure.random.implementation": "OpenSSL has no such choice",
    "sasl.kerberos.kinit.cmd": "tickets are renewed outside of Parallax",
    "ssl.protocol": "OpenSSL takes the best that both sides have, TLS 1.2 at least",
    "ssl.enabled.protocols": "OpenSSL takes the best that both sides have, TLS 1.2 at least",
}
_PEM = "convert it: keytool -exportcert -rfc for authorities, openssl pkcs12 for a key and its certificate"


@dataclass
class ClusterSecurity:
    """The section ``security`` of one cluster, and what became of each key."""

    region: str
    bootstrap_servers: str
    values: dict[str, Any] = field(default_factory=dict)
    rulings: dict[str, Ruling] = field(default_factory=dict)

    def read(self, given: Mapping[str, str]) -> None:
        """Take the keys of a cluster, without the cluster."""
        for key, value in given.items():
            if key in _SAME:
                self._same(key, value)
            elif key == "sasl.jaas.config":
                self._login(value, given)
            elif key in {"ssl.truststore.location", "ssl.keystore.location"}:
                self._store(key, value, given)
            elif key in {"ssl.key.password", "ssl.keystore.password"}:
                if key == "ssl.key.password" or "ssl.key.password" not in given:
                    self._secret(key, "ssl_key_password", value)
                else:
                    self.rulings[key] = Ruling(KeyVerdict.IMPLIED, "the key's own password opens a PEM file")
            elif key == "ssl.endpoint.identification.algorithm":
                self.values["ssl_verify_hostname"] = bool(value.strip())
                self._mapped(key, "ssl_verify_hostname")
            elif key == "sasl.oauthbearer.token.endpoint.url":
                self._oauth()["token_endpoint"] = value
                self._mapped(key, "sasl_oauth.token_endpoint")
            elif key in _IMPLIED:
                self.rulings[key] = Ruling(KeyVerdict.IMPLIED, _IMPLIED[key])
            else:
                self.rulings[key] = Ruling(KeyVerdict.UNSUPPORTED, "there is no such setting here")
        self._finish()

    def _same(self, key: str, value: str) -> None:
        known = {"security.protocol": _PROTOCOLS, "sasl.mechanism": _MECHANISMS}.get(key)
        if known is not None and value.upper() not in known:
            self.rulings[key] = Ruling(
                KeyVerdict.UNSUPPORTED, f"{value!r} is none of {', '.join(sorted(known))}"
            )
            return
        self.values[_SAME[key]] = value if known is None else value.upper()
        self._mapped(key, _SAME[key])

    def _login(self, text: str, given: Mapping[str, str]) -> None:
        key, module = "sasl.jaas.config", read_login_module(text)
        if module is None:
            placeholder = _PLACEHOLDER.fullmatch(text.strip())
            why = (
                "it is filled in elsewhere"
                if placeholder
                else "it is not of the form 'Class required key=value ...;'"
            )
            self.rulings[key] = Ruling(
                KeyVerdict.UNSUPPORTED, f"{why}: set security.sasl_username and sasl_password_file by hand"
            )
            return
        options, name = module.options, module.name
        if name in {"PlainLoginModule", "ScramLoginModule"}:
            self._mapped(key, "sasl_username, sasl_password")
            self.values["sasl_username"] = options.get("username", "")
            self._secret(key, "sasl_password", options.get("password", ""))
            if not options.get("username") or not options.get("password"):
                self.rulings[key] = Ruling(KeyVerdict.UNSUPPORTED, "it has no username, or no password")
        elif name == "OAuthBearerLoginModule":
            self._oauth_login(key, module, given)
        elif name == "IAMLoginModule":
            region = _MSK_HOST.search(self.bootstrap_servers)
            self.values["sasl_aws_region"] = region.group(1) if region else "us-east-1"
            self.rulings[key] = (
                Ruling(
                    KeyVerdict.MAPPED,
                    "credentials are found as AWS's own tools find them",
                    self._to("sasl_aws_region"),
                )
                if region and not options
                else Ruling(
                    KeyVerdict.CHANGED,
                    "check the AWS region; profiles and roles come from the environment, as AWS's own tools have them",
                    self._to("sasl_aws_region"),
                )
            )
        elif name == "Krb5LoginModule":
            self.rulings[key] = Ruling(
                KeyVerdict.CHANGED,
                "a ticket is taken from the cache, which kinit -kt fills with the keytab and principal",
            )
        else:
            self.rulings[key] = Ruling(
                KeyVerdict.UNSUPPORTED, f"{name} is a login module that Parallax does not have"
            )

    def _oauth_login(self, key: str, module: LoginModule, given: Mapping[str, str]) -> None:
        options = module.options
        oauth = self._oauth()
        names = (
            ("clientId", "oauth.client.id"),
            ("clientSecret", "oauth.client.secret"),
            ("scope", "oauth.scope"),
        )
        client, secret, scope = (options.get(kafka, options.get(strimzi, "")) for kafka, strimzi in names)
        endpoint = options.get("oauth.token.endpoint.uri")
        if endpoint:
            oauth["token_endpoint"] = endpoint
        if not client or not (endpoint or given.get("sasl.oauthbearer.token.endpoint.url")):
            self.rulings[key] = Ruling(
                KeyVerdict.UNSUPPORTED, "it names no client, or no token endpoint: set sasl_oauth by hand"
            )
            return
        oauth["client_id"] = client
        if scope:
            oauth["scope"] = scope
        self._mapped(key, "sasl_oauth")
        self._secret(key, "client_secret", secret, into=oauth)

    def _store(self, key: str, value: str, given: Mapping[str, str]) -> None:
        names = ["ssl_ca_location"] if "trust" in key else ["ssl_certificate_location", "ssl_key_location"]
        is_pem = given.get(key.replace("location", "type"), "").upper() == "PEM" or value.endswith(
            (".pem", ".crt")
        )
        path = value if is_pem else re.sub(r"\.(jks|p12|pfx|pkcs12)$", "", value) + ".pem"
        for name in names:
            self.values[name] = path
        to = ", ".join(self._to(name) for name in names)
        self.rulings[key] = (
            Ruling(KeyVerdict.MAPPED, "", to)
            if is_pem
            else Ruling(KeyVerdict.CHANGED, f"it has to be PEM at {path}; {_PEM}", to)
        )

    def _secret(self, key: str, name: str, value: str, into: dict[str, Any] | None = None) -> None:
        values = self.values if into is None else into
        if _PLACEHOLDER.search(value):
            values[f"{name}_file"] = _FILE_OF.format(region=self.region, name=name.replace("_", "-"))
            self.rulings[key] = Ruling(
                KeyVerdict.CHANGED,
                f"put the secret that a provider filled in into {values[f'{name}_file']}",
                self._to(f"{name}_file"),
            )
            return
        values[name] = value
        if key not in self.rulings:
            self._mapped(key, name)

    def _oauth(self) -> dict[str, Any]:
        return self.values.setdefault("sasl_oauth", {})  # type: ignore[no-any-return] # of this class alone

    def _finish(self) -> None:
        """Leave out what the section would be refused for; its keys have been told."""
        oauth = self.values.get("sasl_oauth")
        if oauth is not None and ("client_id" not in oauth or "token_endpoint" not in oauth):
            del self.values["sasl_oauth"]
        if not self.values.get("protocol", "PLAINTEXT").startswith("SASL"):
            return
        mechanism = self.values.get("sasl_mechanism", "GSSAPI")
        self.values["sasl_mechanism"] = mechanism
        whole = {
            "OAUTHBEARER": "sasl_oauth" in self.values,
            "AWS_MSK_IAM": "sasl_aws_region" in self.values,
            "GSSAPI": True,
        }.get(mechanism, bool(self.values.get("sasl_username")))
        if not whole:
            self.values.pop("protocol")
            self.values.pop("sasl_mechanism")
            self.rulings["security.protocol"] = Ruling(
                KeyVerdict.UNSUPPORTED,
                f"{mechanism} needs what the file does not say: write the section 'security' by hand",
            )

    def _mapped(self, key: str, name: str) -> None:
        self.rulings[key] = Ruling(
            KeyVerdict.MAPPED, "", ", ".join(self._to(part) for part in name.split(", "))
        )

    def _to(self, name: str) -> str:
        return f"regions.{self.region}.cluster.security.{name}"


def is_security(key: str) -> bool:
    """Whether a key, without its cluster, is about who we are at the cluster, and who it is."""
    return key.startswith(("security.", "sasl.", "ssl."))
