"""Rules of access (ACLs) of a cluster, asked of brokers, made and taken away (DescribeAcls, CreateAcls, DeleteAcls)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from kafka.errors import for_code
from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest

from parallax.adapters.kafka.links import Link, Links
from parallax.config.config import Cluster
from parallax.domain.access_rules import AccessKind, AccessOperation, AccessRule, NameMatch
from parallax.domain.ids import ClusterName
from parallax.errors import RefusedError

_KINDS = {AccessKind.TOPIC: 2, AccessKind.GROUP: 3}
_MATCHES = {NameMatch.LITERAL: 3, NameMatch.PREFIXED: 4}
_OPERATIONS = {
    AccessOperation.ALL: 2,
    AccessOperation.READ: 3,
    AccessOperation.WRITE: 4,
    AccessOperation.CREATE: 5,
    AccessOperation.DELETE: 6,
    AccessOperation.ALTER: 7,
    AccessOperation.DESCRIBE: 8,
    AccessOperation.DESCRIBE_CONFIGS: 10,
    AccessOperation.ALTER_CONFIGS: 11,
}
_DENY, _ALLOW = 2, 3
_ANY = 1
_SECURITY_DISABLED = 54
_REFUSED = frozenset({35, 42, 44, 67})
"""Not supported, invalid, against the cluster's policy, an invalid principal: this rule stays as it was. After any other error
nobody knows: the controller may have done it, and answered too late."""

_KIND_OF = {number: kind for kind, number in _KINDS.items()}
_MATCH_OF = {number: match for match, number in _MATCHES.items()}
_OPERATION_OF = {number: operation for operation, number in _OPERATIONS.items()}


class AccessDoor:
    """The rules of one cluster about topics and groups. Safe to use from several threads.

    Args:
        cluster: the cluster's name.
        settings: its address and security.
        timeout_ms: bound of each call.
    """

    def __init__(self, cluster: ClusterName, settings: Cluster, *, timeout_ms: int) -> None:
        self.cluster = cluster
        self._links = Links(cluster, settings, client_id=f"parallax-{cluster}", timeout_ms=timeout_ms)

    def read(self) -> frozenset[AccessRule]:
        """Every rule about topics and groups.

        Raises:
            RefusedError: the cluster asks nobody who is there.
            ConfigError: this client may not see them (Describe on the cluster).
            ClusterUnavailableError: the cluster did not answer in time.
        """
        topics = self._links.do(partial(_read, kind=AccessKind.TOPIC))
        groups = self._links.do(partial(_read, kind=AccessKind.GROUP))
        return frozenset([*topics, *groups])

    def add(self, rules: Collection[AccessRule]) -> Mapping[AccessRule, str]:
        """Make rules; those that the cluster does not take, with why.

        Raises:
            ConfigError: this client may not make any (Alter on the cluster).
            ClusterUnavailableError: the cluster did not answer in time; they may or may not be made.
        """
        return self._links.do(lambda link: _add(link, sorted(rules))) if rules else {}

    def remove(self, rules: Collection[AccessRule]) -> Mapping[AccessRule, str]:
        """Take rules away; those that the cluster leaves, with why. One that is gone already is no matter.

        Raises:
            ConfigError: this client may not take any away (Alter on the cluster).
            ClusterUnavailableError: the cluster did not answer in time; they may or may not be gone.
        """
        return self._links.do(lambda link: _remove(link, sorted(rules))) if rules else {}


def _read(link: Link, kind: AccessKind) -> list[AccessRule]:
    doing = "reading rules of access"
    request = DescribeAclsRequest(
        resource_type_filter=_KINDS[kind],
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
        min_version=1,
        max_version=3,
    )
    answer = link.ask(link.any_node, request, doing)
    if answer.error_code == _SECURITY_DISABLED:
        raise RefusedError(
            f"{link.cluster}: {doing}: the brokers have no authorizer, so that there are no rules"
        )
    link.check(answer.error_code, doing)
    return [
        AccessRule(
            _KIND_OF[resource.resource_type],
            _MATCH_OF[resource.pattern_type],
            resource.resource_name,
            item.principal,
            item.host,
            _OPERATION_OF[item.operation],
            item.permission_type == _ALLOW,
        )
        for resource in answer.resources
        if resource.resource_type in _KIND_OF and resource.pattern_type in _MATCH_OF
        for item in resource.acls
        if item.operation in _OPERATION_OF
    ]


def _numbers(rule: AccessRule) -> tuple[int, int, int, int]:
    permission = _ALLOW if rule.allow else _DENY
    return _KINDS[rule.kind], _MATCHES[rule.match], _OPERATIONS[rule.operation], permission


def _add(link: Link, rules: Sequence[AccessRule]) -> dict[AccessRule, str]:
    doing = "making rules of access"
    creations = []
    for rule in rules:
        kind, match, operation, permission = _numbers(rule)
        creations.append(
            CreateAclsRequest.AclCreation(
                resource_type=kind,
                resource_name=rule.name,
                resource_pattern_type=match,
                principal=rule.principal,
                host=rule.host,
                operation=operation,
                permission_type=permission,
            )
        )
    answer = link.ask(
        link.any_node, CreateAclsRequest(creations=creations, min_version=1, max_version=3), doing
    )
    return _refused(link, rules, answer.results, doing)


def _remove(link: Link, rules: Sequence[AccessRule]) -> dict[AccessRule, str]:
    doing = "taking rules of access away"
    filters = []
    for rule in rules:
        kind, match, operation, permission = _numbers(rule)
        filters.append(
            DeleteAclsRequest.DeleteAclsFilter(
                resource_type_filter=kind,
                resource_name_filter=rule.name,
                pattern_type_filter=match,
                principal_filter=rule.principal,
                host_filter=rule.host,
                operation=operation,
                permission_type=permission,
            )
        )
    answer = link.ask(link.any_node, DeleteAclsRequest(filters=filters, min_version=1, max_version=3), doing)
    # A filter may be well and the one rule that it meets not.
    results = [
        next((item for item in result.matching_acls if item.error_code), result)
        for result in answer.filter_results
    ]
    return _refused(link, rules, results, doing)


def _refused(
    link: Link, rules: Sequence[AccessRule], results: Sequence[Any], doing: str
) -> dict[AccessRule, str]:
    """The rules that the cluster does not take, or leaves, for sure; any other error is raised."""
    refused = {}
    for rule, result in zip(rules, results, strict=True):
        if result.error_code in _REFUSED:
            name = for_code(result.error_code).__name__
            refused[rule] = f"{link.cluster}: {result.error_message or doing} ({name})"
        else:
            link.check(result.error_code, doing)
    return refused
