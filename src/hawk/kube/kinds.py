"""Where the API keeps each kind of object. Pure."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote


class Kind(NamedTuple):
    """One kind of object.

    Attributes:
        group: API group; empty for the core.
        plural: Its name in paths.
        namespaced: Whether it lives in a namespace.
    """

    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As `apiVersion` says it in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version


KINDS = {
    "Pod": Kind("", "v1", "pods"),
    "Secret": Kind("", "v1", "secrets"),
    "ConfigMap": Kind("", "v1", "configmaps"),
    "Service": Kind("", "v1", "services"),
    "Endpoints": Kind("", "v1", "endpoints"),
    "Event": Kind("", "v1", "events"),
    "Node": Kind("", "v1", "nodes", namespaced=False),
    "PersistentVolumeClaim": Kind("", "v1", "persistentvolumeclaims"),
    "Namespace": Kind("", "v1", "namespaces", namespaced=False),
    "ResourceQuota": Kind("", "v1", "resourcequotas"),
    "LimitRange": Kind("", "v1", "limitranges"),
    "ServiceAccount": Kind("", "v1", "serviceaccounts"),
    "Job": Kind("batch", "v1", "jobs"),
    "Deployment": Kind("apps", "v1", "deployments"),
    "StatefulSet": Kind("apps", "v1", "statefulsets"),
    "NetworkPolicy": Kind("networking.k8s.io", "v1", "networkpolicies"),
    "Lease": Kind("coordination.k8s.io", "v1", "leases"),
    "RuntimeClass": Kind("node.k8s.io", "v1", "runtimeclasses", namespaced=False),
    "PriorityClass": Kind("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False),
    "PodDisruptionBudget": Kind("policy", "v1", "poddisruptionbudgets"),
    "Role": Kind("rbac.authorization.k8s.io", "v1", "roles"),
    "RoleBinding": Kind("rbac.authorization.k8s.io", "v1", "rolebindings"),
    "SelfSubjectAccessReview": Kind(
        "authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False
    ),
}


def path_of(kind: str, namespace: str, name: str = "", *, subresource: str = "") -> str:
    """The API's path of an object, or of all of a kind when no name is given.

    Raises:
        KeyError: The kind is not in the table.
    """
    known = KINDS[kind]
    parts = [f"/apis/{known.group}/{known.version}" if known.group else f"/api/{known.version}"]
    if known.namespaced:
        parts.append(f"namespaces/{quote(namespace, safe='')}")
    parts.append(known.plural)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)
