"""The description of the middleman's own paths (OpenAPI 3.1). Providers' paths are theirs, and described by them."""

from __future__ import annotations

import re
from functools import cache

import msgspec

from hawk import __version__
from hawk.core.traffic.prices import Price
from hawk.middleman.keys import ACCOUNT, KEY, KeyInfo
from hawk.middleman.openapi_shapes import (
    COUNT,
    JOB,
    JOB_STATUS,
    MODEL,
    STATUS,
    TEXT,
    Schema,
    listed,
    maybe,
    record,
)
from hawk.middleman.probe import Probe
from hawk.middleman.refusals import STATUS as ERRORS

JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""A job's name, in a path."""

_COMPONENTS = "#/components/schemas/{name}"
_PERSON: Schema = {"person": []}
_JOB: Schema = {"job": []}
_SCHEMES = {
    "person": {
        "type": "http",
        "scheme": "bearer",
        "description": "The access token: `hawk auth access-token`.",
    },
    "job": {"type": "http", "scheme": "bearer", "description": "The token of one job."},
}
_ASKER: Schema = {
    "type": "object",
    "properties": {"api_key": maybe(TEXT), "only_available_models": {"type": "boolean"}},
}
_PROVIDER: Schema = {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"}
_ACCOUNT: Schema = {"type": "string", "pattern": f"^{ACCOUNT.pattern}$"}
_JOB_ID: Schema = {"type": "string", "pattern": f"^{JOB_NAME.pattern}$"}
_VALUE: Schema = {"type": "string", "pattern": f"^{KEY.pattern}$"}


def _ref(name: str) -> Schema:
    return {"$ref": _COMPONENTS.format(name=name)}


def _answer(text: str, schema: Schema, kind: str = "application/json") -> Schema:
    return {"description": text, "content": {kind: {"schema": schema}}}


def _failure(status: int) -> Schema:
    """One of the middleman's own errors, with the types that go with this status."""
    types = ", ".join(f"`{name}`" for name, code in ERRORS.items() if code == status)
    found = _answer(f"One of {types}.", _ref("Error"))
    if status == 405:
        found["headers"] = {"Allow": {"required": True, "schema": TEXT}}
    return found


def _operation(
    summary: str,
    answer: Schema,
    *,
    who: tuple[Schema, ...] = (_PERSON,),
    errors: tuple[int, ...] = (),
    body: Schema | None = None,
    optional: bool = False,
    query: dict[str, Schema] | None = None,
    path: dict[str, Schema] | None = None,
    kind: str = "application/json",
) -> Schema:
    """One operation.

    Args:
        who: Whose token it takes; empty: nobody's.
        errors: Statuses of errors beside those that follow from the rest.
        optional: The body may be left out.
    """
    general = {400, 405, *errors}
    if who:
        general |= {401} if len(who) > 1 else {401, 403}
    parameters = [{"name": n, "in": "path", "required": True, "schema": s} for n, s in (path or {}).items()]
    parameters += [{"name": n, "in": "query", "schema": s} for n, s in (query or {}).items()]
    found: Schema = {
        "summary": summary,
        "security": list(who),
        "parameters": parameters,
        "responses": {
            "200": _answer("As asked.", answer, kind),
            **{str(status): _failure(status) for status in sorted(general)},
            "5XX": _answer("A fault of the middleman's own, or it is about to end.", _ref("Error")),
        },
    }
    if body is not None:
        content = {"application/json": {"schema": body}}
        found["requestBody"] = {"required": not optional, "content": content}
    return found


@cache
def document() -> Schema:
    """The whole description."""
    shapes, components = msgspec.json.schema_components([Probe, KeyInfo, Price], ref_template=_COMPONENTS)
    probe, key, price = shapes
    error = {"message": TEXT, "type": {"type": "string", "enum": sorted(ERRORS)}}
    components |= {"Error": record(error=record(**error)), "Model": MODEL, "Job": JOB, "Status": STATUS}
    components["JobStatus"] = JOB_STATUS
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hawk middleman", "version": __version__},
        "components": {"securitySchemes": _SCHEMES, "schemas": components},
        "paths": {**_open(), **_models(), **_job(), **_admin(probe, price), **_keys(key)},
    }


def _open() -> dict[str, Schema]:
    healthy = record(status=TEXT)
    ready = _operation("Whether it takes requests.", healthy, who=())
    ready["responses"]["503"] = _answer("It is about to end.", healthy)
    return {
        "/health/live": {"get": _operation("Whether it runs.", healthy, who=())},
        "/health/ready": {"get": ready},
        "/openapi.json": {"get": _operation("This description.", {"type": "object"}, who=())},
    }


def _models() -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    for name, summary, answer in (
        ("permitted_models", "Names of the models that the bearer may use.", listed(TEXT)),
        ("permitted_models_info", "Models that the bearer may use.", listed(_ref("Model"))),
        ("public_models_info", "Models that everybody may use.", listed(_ref("Model"))),
    ):
        post = _operation(
            f"{summary} Without a token in the header, the body's `api_key` counts.",
            answer,
            who=(_PERSON, _JOB, {}),
            body=_ASKER,
            optional=True,
        )
        found[f"/{name}"] = {"get": _operation(summary, answer, who=(_PERSON, _JOB)), "post": post}
    by_name = {"type": "object", "additionalProperties": TEXT}
    groups = record(groups=by_name, labs=by_name, providers=by_name, dead=listed(TEXT))
    query = {"model": listed(TEXT)}
    found["/model_groups"] = {
        "get": _operation("Group and provider of models.", groups, who=(_PERSON, _JOB), query=query)
    }
    return found


def _job() -> dict[str, Schema]:
    keys = {"type": "object", "additionalProperties": TEXT}
    return {
        "/job": {
            "get": _operation("What the bearing job has spent and has on its way.", _ref("Job"), who=(_JOB,)),
            "delete": _operation("The bearing job has ended.", record(closed=COUNT), who=(_JOB,)),
        },
        "/job/status": {
            "get": _operation(
                "The bearing job's lanes and open requests, at all replicas.", _ref("JobStatus"), who=(_JOB,)
            )
        },
        "/job/keys": {
            "put": _operation(
                "Keys of the bearing job's own, by environment variable.",
                record(keys=COUNT, providers=listed(TEXT)),
                who=(_JOB,),
                body=keys,
                optional=True,
            )
        },
    }


def _admin(probe: Schema, price: Schema) -> dict[str, Schema]:
    prices = record(as_of=TEXT, models={"type": "object", "additionalProperties": price})
    revoked = record(closed=COUNT)
    return {
        "/metrics": {"get": _operation("Prometheus metrics.", TEXT, kind="text/plain")},
        "/admin/status": {"get": _operation("Lanes, jobs, open requests.", _ref("Status"))},
        "/admin/models": {"get": _operation("All models.", listed(_ref("Model")))},
        "/admin/prices": {"get": _operation("Prices in dollars per million tokens.", prices)},
        "/admin/reload": {
            "post": _operation(
                "Read the configuration again.", record(providers=COUNT, models=COUNT, keys=COUNT)
            )
        },
        "/admin/probe": {
            "post": _operation(
                "One small request through the middleman and directly.",
                probe,
                errors=(404,),
                body=record(model=TEXT, optional={"job": maybe(TEXT)}),
            )
        },
        "/admin/jobs/{job}/revoke": {
            "post": _operation("End a job's requests and its tokens.", revoked, path={"job": _JOB_ID})
        },
    }


def _keys(key: Schema) -> dict[str, Schema]:
    found = {"/admin/keys": {"get": _operation("Keys, without their values.", listed(key))}}
    for path in ({"provider": _PROVIDER}, {"provider": _PROVIDER, "account": _ACCOUNT}):
        found["/admin/keys/" + "/".join(f"{{{name}}}" for name in path)] = {
            "get": _operation("A provider's keys, without their values.", listed(key), path=path),
            "put": _operation("Set a key.", key, body=record(value=_VALUE), path=path),
            "delete": _operation("Remove a key.", record(removed=TEXT), errors=(404,), path=path),
        }
    return found
