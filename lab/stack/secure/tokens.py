"""Tokens of a secure stack's own issuer: who somebody is, for whom that is said, and until when.

The key is made once and then found again; the public one lies beside it, for brokers to read and for the issuer to show.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from lab.stack.secure.authority import pem_of, write_secret

ISSUER_NAME = "https://issuer.parallax.lab"
"""The claim `iss`: a name, and no address."""
KAFKA, SERVICES = "kafka", "offset-services"
"""For whom a token can be: the claim `aud`, and the `scope` that a client asks for."""
TOKEN_LIFE_S = 300.0
_KEY_ID = "lab"
_ALGORITHM = "ES256"


class Signer:
    """A key in a folder that signs tokens.

    Args:
        directory: holds ``key.pem`` and ``jwks.json``; only its owner may enter it.
        now: seconds since 1970.
    """

    def __init__(self, directory: Path, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self.public_keys = directory / "jwks.json"
        private = directory / "key.pem"
        if not private.exists():
            write_secret(private, pem_of(ec.generate_private_key(ec.SECP256R1())))
        key = load_pem_private_key(private.read_bytes(), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{private} is no elliptic curve key: it was not written here")
        self._key = key
        if not self.public_keys.exists():
            public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
            document = {"keys": [public | {"kid": _KEY_ID, "use": "sig", "alg": _ALGORITHM}]}
            write_secret(self.public_keys, json.dumps(document).encode())

    def token(self, user: str, audience: str, life_s: float = TOKEN_LIFE_S) -> str:
        """A token that says who somebody is.

        Args:
            user: who (`sub`).
            audience: for whom (`aud`).
            life_s: how long it is good.
        """
        now = int(self._now())
        claims = {"iss": ISSUER_NAME, "sub": user, "aud": audience, "iat": now, "exp": now + int(life_s)}
        return jwt.encode(claims, self._key, algorithm=_ALGORITHM, headers={"kid": _KEY_ID})
