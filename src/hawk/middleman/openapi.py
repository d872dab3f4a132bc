"""The description of the middleman's own paths (OpenAPI 3.1). Providers' paths are theirs, and described by them."""

from __future__ import annotations

from functools import cache
from typing import Any

from hawk import __version__
from hawk.middleman.refusals import STATUS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "number"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_ANY: Schema = {}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_ERROR = _object({"error": _object({"message": _TEXT, "type": {"type": "string", "enum": sorted(STATUS)}})})
_LEG = _object(
    {
        "status": _maybe(_COUNT),
        "seconds": _NUMBER,
        "error": _maybe(_TEXT),
        "type": _maybe(_TEXT),
        "body": _TEXT,
    }
)
_PROBE = _object(
    {
        "model": _TEXT,
        "provider": _TEXT,
        "through": _LEG,
        "direct": _LEG,
        "verdict": _TEXT,
        "whose": {"enum": ["nobody", "provider", "middleman", "caller", "unknown"]},
        "remedy": _TEXT,
    }
)
_JOB = _object(
    {
        "job": _TEXT,
        "requests": _COUNT,
        "tokens": _COUNT,
        "usd": _maybe(_NUMBER),
        "unpriced": _COUNT,
        "in_flight": _COUNT,
        "waiting": _COUNT,
        "budget": _object({"usd": _maybe(_NUMBER), "tokens": _maybe(_COUNT)}),
        "exhausted": _maybe(_TEXT),
    },
    {"instance": _TEXT},
)
_MODEL = _object(
    {
        "name": _TEXT,
        "inspect_name": _TEXT,
        "provider": _TEXT,
        "groups": _list(_TEXT),
        "dead": {"type": "boolean"},
    }
)
_KEY = _object({"provider": _TEXT, "account": _TEXT, "source": _TEXT, "tail": _TEXT})
_STATUS = _object(
    {
        "instance": _TEXT,
        "version": _TEXT,
        "pid": _COUNT,
        "url": _TEXT,
        "started_at": _TEXT,
        "draining": {"type": "boolean"},
        "lanes": _list(
            _object({"provider": _TEXT, "account": _TEXT, "model": _maybe(_TEXT), "limit": _COUNT})
        ),
        "jobs": _list(_JOB),
        "requests": _list(_object({"id": _TEXT, "provider": _TEXT, "phase": _TEXT, "age_s": _NUMBER})),
        "shared": _maybe(_object({"replicas": _COUNT, "behind_s": _NUMBER, "problem": _maybe(_TEXT)})),
    }
)
_CREDENTIAL: Schema = {"api_key": _TEXT, "only_available_models": {"type": "boolean"}}


def _answer(text: str, schema: Schema, kind: str = "application/json") -> Schema:
    return {"description": text, "content": {kind: {"schema": schema}}}


def _operation(
    summary: str,
    answer: Schema,
    *,
    errors: tuple[int, ...] = (400, 401, 403, 404),
    body: Schema | None = None,
    query: tuple[str, ...] = (),
    path: tuple[str, ...] = (),
    open_: bool = False,
    kind: str = "application/json",
) -> Schema:
    found: Schema = {"summary": summary, "responses": {"200": _answer("As asked.", answer, kind)}}
    for status in errors:
        found["responses"][str(status)] = _answer("See the error's type.", _ERROR)
    if body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    found["parameters"] = [
        *({"name": n, "in": "path", "required": True, "schema": _TEXT} for n in path),
        *({"name": n, "in": "query", "schema": _list(_TEXT)} for n in query),
    ]
    if open_:
        found["security"] = []
    return found


@cache
def document() -> Schema:
    """The whole description."""
    healthy = _object({"status": _TEXT})
    ready = _operation("Whether it takes requests.", healthy, errors=(400,), open_=True)
    ready["responses"]["503"] = _answer("It is about to end.", healthy)
    asker = {"type": "object", "properties": _CREDENTIAL}
    paths: dict[str, Schema] = {
        "/health/live": {"get": _operation("Whether it runs.", healthy, errors=(400,), open_=True)},
        "/health/ready": {"get": ready},
        "/openapi.json": {
            "get": _operation("This description.", {"type": "object"}, errors=(400,), open_=True)
        },
        "/metrics": {"get": _operation("Prometheus metrics.", _TEXT, kind="text/plain")},
        "/permitted_models": {
            "get": _operation("Names of the models that the bearer may use.", _list(_TEXT)),
            "post": _operation("The same, with the credential in the body.", _list(_TEXT), body=asker),
        },
        "/permitted_models_info": {
            "get": _operation("Models that the bearer may use.", _list(_MODEL)),
            "post": _operation("The same, with the credential in the body.", _list(_MODEL), body=asker),
        },
        "/public_models_info": {
            "get": _operation("Models that everybody may use.", _list(_MODEL)),
            "post": _operation("The same, with the credential in the body.", _list(_MODEL), body=asker),
        },
        "/model_groups": {
            "get": _operation("Group and provider of models.", {"type": "object"}, query=("model",))
        },
        "/job": {
            "get": _operation("What the bearing job has spent and has on its way.", _JOB),
            "delete": _operation("The bearing job has ended.", _object({"closed": _COUNT})),
        },
        "/job/keys": {
            "put": _operation(
                "Keys of the bearing job's own, by environment variable.",
                _object({"keys": _COUNT, "providers": _list(_TEXT)}),
                body={"type": "object", "additionalProperties": _TEXT},
            )
        },
        "/admin/status": {"get": _operation("Lanes, jobs, open requests.", _STATUS)},
        "/admin/models": {"get": _operation("All models.", _list(_MODEL))},
        "/admin/prices": {"get": _operation("Prices in dollars per million tokens.", {"type": "object"})},
        "/admin/reload": {"post": _operation("Read the configuration again.", {"type": "object"})},
        "/admin/probe": {
            "post": _operation(
                "One small request through the middleman and directly.",
                _PROBE,
                body=_object({"model": _TEXT}, {"job": _maybe(_TEXT)}),
            )
        },
        "/admin/jobs/{job}/revoke": {
            "post": _operation(
                "End a job's requests and its tokens.", _object({"closed": _COUNT}), path=("job",)
            )
        },
        "/admin/keys": {"get": _operation("Keys, without their values.", _list(_KEY))},
        "/admin/keys/{provider}": _key_operations("provider"),
        "/admin/keys/{provider}/{account}": _key_operations("provider", "account"),
    }
    for methods in paths.values():
        for operation in methods.values():
            operation["responses"]["405"] = _answer("Not this method.", _ERROR)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Hawk middleman", "version": __version__},
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        "security": [{"bearer": []}],
        "paths": paths,
    }


def _key_operations(*path: str) -> Schema:
    return {
        "get": _operation("A provider's keys, without their values.", _list(_KEY), path=path),
        "put": _operation("Set a key.", _KEY, body=_object({"value": _TEXT}), path=path),
        "delete": _operation("Remove a key.", _object({"removed": _TEXT}), path=path),
    }
