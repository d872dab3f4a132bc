"""Objects of the API as plain dicts, and what is done with them.

Kinds are named as in a manifest (`Pod`, `Job`, …; the table is `hawk.kube.kinds`). Every call has a client-side
deadline (`patience`, seconds) up to which it is tried again, and raises `ClusterError` beyond it.
"""

from __future__ import annotations

from typing import Any

from hawk.errors import ClusterError
from hawk.kube.kinds import KINDS, path_of
from hawk.kube.problems import Reason, reason_of
from hawk.kube.requests import PATIENCE, Requests

Object = dict[str, Any]
"""An object of the API, as its JSON has it."""

MERGE = "application/merge-patch+json"
_Objects = list[Object]  # inside the class `list` is a method
_Steps = list[Any]
_PAGE = "500"


class Objects:
    """What can be asked of all kinds.

    Attributes:
        namespace: Where things are when no other is named.
        requests: What carries it; `requests.sent` counts.
    """

    namespace: str
    requests: Requests

    async def get(
        self, kind: str, name: str, *, namespace: str | None = None, patience: float = PATIENCE
    ) -> Object | None:
        """One object; None when there is none of that name."""
        where = namespace or self.namespace
        try:
            found: Object = await self.requests.send(
                "GET", path_of(kind, where, name), what=said("get", kind, name, where), patience=patience
            )
        except ClusterError as ex:
            if reason_of(ex) == Reason.NOT_FOUND:
                return None
            raise
        return found

    async def list(
        self,
        kind: str,
        *,
        labels: str = "",
        fields: str = "",
        namespace: str | None = None,
        patience: float = PATIENCE,
        limit: int | None = None,
    ) -> tuple[_Objects, str]:
        """All objects that match, in pages, and the resource version from which a watch goes on.

        Args:
            labels: A label selector.
            fields: A field selector.
            limit: Only the first ones, at most so many.
        """
        where = namespace or self.namespace
        query = {"limit": str(limit) if limit else _PAGE}
        query |= {"labelSelector": labels} if labels else {}
        query |= {"fieldSelector": fields} if fields else {}
        items: _Objects = []
        while True:
            page = await self.requests.send(
                "GET",
                path_of(kind, where),
                query=query,
                what=said("list", kind, labels, where),
                patience=patience,
            )
            items += page.get("items") or []
            meta = page.get("metadata") or {}
            if limit or not meta.get("continue"):
                break
            query["continue"] = meta["continue"]
        for item in items:  # a list leaves out what all of it have in common
            item.setdefault("kind", kind)
            item.setdefault("apiVersion", KINDS[kind].api_version)
        return items, str(meta.get("resourceVersion", ""))

    async def create(
        self,
        manifest: Object,
        *,
        exist_ok: bool = False,
        dry_run: bool = False,
        namespace: str | None = None,
        patience: float = PATIENCE,
    ) -> Object:
        """Create an object; returns it as the cluster completed it.

        Args:
            manifest: `apiVersion` may be left out. Its own namespace wins over the argument.
            exist_ok: One of that name may be there, and is returned.
            dry_run: Everything is checked, nothing is kept.
        """
        kind = manifest["kind"]
        meta = manifest.get("metadata") or {}
        where = meta.get("namespace") or namespace or self.namespace
        name = meta.get("name") or meta.get("generateName") or ""
        body = {"apiVersion": KINDS[kind].api_version, **manifest}
        try:
            made: Object = await self.requests.send(
                "POST",
                path_of(kind, where),
                body=body,
                query={"dryRun": "All"} if dry_run else None,
                what=said("create", kind, name, where),
                patience=patience,
            )
        except ClusterError as ex:
            # after a try whose answer was lost, it may be our own that is there
            if reason_of(ex) != Reason.EXISTS or not (exist_ok or ex.fields.get("again")):
                raise
            found = await self.get(kind, name, namespace=where, patience=patience)
            if found is None:
                raise
            return found
        return made

    async def patch(
        self,
        kind: str,
        name: str,
        patch: Object | _Steps,
        *,
        namespace: str | None = None,
        subresource: str = "",
        patience: float = PATIENCE,
    ) -> Object:
        """Change an object: a merge patch (a dict), or a JSON patch (a list). Returns it as it is then."""
        where = namespace or self.namespace
        changed: Object = await self.requests.send(
            "PATCH",
            path_of(kind, where, name, subresource=subresource),
            body=patch,
            content_type=MERGE if isinstance(patch, dict) else "application/json-patch+json",
            what=said("change", kind, name, where),
            patience=patience,
        )
        return changed

    async def replace(
        self, manifest: Object, *, namespace: str | None = None, patience: float = PATIENCE
    ) -> Object:
        """Put an object in the place of the one with its name; with a `resourceVersion` only of that version.

        Raises:
            ClusterError: It has changed meanwhile (`reason`: conflict), say.
        """
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        where = manifest["metadata"].get("namespace") or namespace or self.namespace
        changed: Object = await self.requests.send(
            "PUT",
            path_of(kind, where, name),
            body={"apiVersion": KINDS[kind].api_version, **manifest},
            what=said("replace", kind, name, where),
            patience=patience,
        )
        return changed

    async def delete(
        self,
        kind: str,
        name: str,
        *,
        grace: int | None = None,
        propagation: str = "Background",
        uid: str | None = None,
        namespace: str | None = None,
        patience: float = PATIENCE,
    ) -> bool:
        """Have an object deleted. Returns False when it was not there (or has another uid by now).

        Args:
            grace: Seconds that its processes get; its own when left out.
            propagation: `Background`, `Foreground` or `Orphan`: what becomes of what it owns.
            uid: Only the one with this uid.
        """
        where = namespace or self.namespace
        try:
            await self.requests.send(
                "DELETE",
                path_of(kind, where, name),
                body=_options(grace, propagation, uid),
                what=said("delete", kind, name, where),
                patience=patience,
            )
        except ClusterError as ex:
            gone = reason_of(ex) == Reason.NOT_FOUND or (uid is not None and reason_of(ex) == Reason.CONFLICT)
            if gone:
                return False
            raise
        return True

    async def delete_all(
        self,
        kind: str,
        *,
        labels: str,
        fields: str = "",
        grace: int | None = None,
        propagation: str = "Background",
        namespace: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """Have all objects deleted that match; a selector must be given."""
        if not labels:
            raise ValueError("delete_all needs a label selector")
        where = namespace or self.namespace
        query = {"labelSelector": labels} | ({"fieldSelector": fields} if fields else {})
        await self.requests.send(
            "DELETE",
            path_of(kind, where),
            query=query,
            body=_options(grace, propagation, None),
            what=said("delete", kind, labels, where),
            patience=patience,
        )


def _options(grace: int | None, propagation: str, uid: str | None) -> Object:
    result: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
    if grace is not None:
        result["gracePeriodSeconds"] = grace
    if uid is not None:
        result["preconditions"] = {"uid": uid}
    return result


def said(verb: str, kind: str, name: str, namespace: str) -> str:
    place = f" in namespace {namespace}" if KINDS[kind].namespaced else ""
    return f"{verb} {kind} {name}".rstrip() + place
