"""The principal that a bearer token proves (RFC 6750, RFC 7519, RFC 8725)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt

from parallax.config.auth import Jwt
from parallax.domain.rights import Principal, ProvenBy
from parallax.errors import UnauthenticatedError
from parallax.identity.certificates import is_a_name
from parallax.identity.key_sets import ALGORITHMS, KeySet

_LONGEST = 16 * 1024
_SCHEME = "bearer "


@dataclass(frozen=True, slots=True)
class ReadToken:
    """What a token that is accepted says.

    Attributes:
        algorithm: it is signed with.
        claims: it makes.
    """

    algorithm: str
    claims: Mapping[str, Any]


class TokenReader:
    """Takes tokens of one issuer for one audience, whomever they name.

    Args:
        keys: the issuer's.
        issuer: the only ``iss`` that is accepted.
        audience: what ``aud`` has to hold.
        leeway_s: so much may this clock differ from the issuer's.
    """

    def __init__(self, keys: KeySet, *, issuer: str, audience: str, leeway_s: int) -> None:
        self._keys = keys
        self._issuer, self._audience, self._leeway_s = issuer, audience, leeway_s

    def read(self, token: str) -> ReadToken:
        """What a token says.

        Raises:
            UnauthenticatedError: it is not accepted; the message says why, and shows nothing of it.
            UnavailableError: the issuer's keys can't be had just now.
        """
        if not token or len(token) > _LONGEST:
            raise UnauthenticatedError(f"a token has 1 to {_LONGEST} characters")
        algorithm, key_id = self._header(token)
        for key in self._keys.find(key_id):
            if algorithm in key.algorithms:
                claims = self._claims(token, key.key, algorithm)
                if claims is not None:
                    return ReadToken(algorithm, claims)
        raise UnauthenticatedError("no key of the issuer has signed the token")

    def _header(self, token: str) -> tuple[str, str | None]:
        try:
            header = jwt.get_unverified_header(token)
        except Exception as error:  # a stranger's bytes: whatever they break, it is no token
            raise UnauthenticatedError("the token can't be read") from error
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise UnauthenticatedError(f"a token is signed with one of {', '.join(sorted(ALGORITHMS))}")
        return str(algorithm), None if key_id is None else str(key_id)

    def _claims(self, token: str, key: Any, algorithm: str) -> Mapping[str, Any] | None:
        """What the token says; None: this key has not signed it."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self._issuer,
                leeway=self._leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.InvalidSignatureError:
            return None
        except jwt.ExpiredSignatureError as error:
            raise UnauthenticatedError("the token has expired") from error
        except jwt.ImmatureSignatureError as error:
            raise UnauthenticatedError("the token is not valid yet: a clock may be off") from error
        except jwt.InvalidIssuerError as error:
            raise UnauthenticatedError("the token is of another issuer") from error
        except jwt.InvalidAudienceError as error:
            raise UnauthenticatedError("the token is for another audience") from error
        except jwt.MissingRequiredClaimError as error:
            raise UnauthenticatedError(f"the token has no claim {error.claim!r}") from error
        except Exception as error:  # signed by the issuer or not: what can't be read proves nobody
            raise UnauthenticatedError("the token can't be read") from error
        return claims


class TokenVerifier:
    """The principals of tokens of one issuer for one audience.

    Args:
        settings: which tokens are accepted.
        keys: the issuer's.
    """

    def __init__(self, settings: Jwt, keys: KeySet) -> None:
        self._claim = settings.principal_claim
        self._reader = TokenReader(
            keys, issuer=settings.issuer, audience=settings.audience, leeway_s=settings.leeway_s
        )
        self.keys = keys

    def principal(self, authorization: str) -> Principal:
        """The principal of an ``authorization`` header.

        Raises:
            UnauthenticatedError: it holds no token, or one that is not accepted; the message says why, and shows nothing of it.
            UnavailableError: the issuer's keys can't be had just now.
        """
        if not authorization.lower().startswith(_SCHEME):
            raise UnauthenticatedError("a bearer token is needed: 'authorization: Bearer TOKEN'")
        name = self._reader.read(authorization[len(_SCHEME) :].strip()).claims.get(self._claim)
        if not is_a_name(name):
            raise UnauthenticatedError(
                f"the token's claim {self._claim!r} names nobody (service.auth.jwt.principal_claim)"
            )
        return Principal(str(name), ProvenBy.TOKEN)
