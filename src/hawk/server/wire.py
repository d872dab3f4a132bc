"""Bodies in and out as msgspec structs, and their schemas for `/openapi.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response

from hawk import __version__
from hawk.server.errors import PROBLEM, InvalidRequestError
from hawk.server.gate import OPEN_PATHS

T = TypeVar("T")

MAX_BODY = 16 * 1024 * 1024  # an eval set's text; nothing else that is sent here comes near
_encoder = msgspec.json.Encoder()


class Problem(msgspec.Struct):
    """The body of every error."""

    title: str
    status: int
    detail: str
    code: str
    remedy: str | None
    fields: dict[str, Any]


def reply(value: Any, status: int = 200) -> Response:
    """A struct as a JSON response."""
    return Response(_encoder.encode(value), status, media_type="application/json")


async def body(request: Request, type_: type[T]) -> T:
    """The request's JSON body.

    Raises:
        InvalidRequestError: It is not JSON, not of that form, or too large.
    """
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > MAX_BODY:
            raise InvalidRequestError(f"The request's body is larger than {MAX_BODY // 2**20} MiB.")
    try:
        return msgspec.json.decode(data or b"{}", type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as ex:
        raise InvalidRequestError(f"The request's body is not valid: {ex}.") from ex
    except RecursionError as ex:
        raise InvalidRequestError("The request's body is nested too deep.") from ex


Described = dict[str, Any]

NOT_MODIFIED: Mapping[int, Described] = {304: {"description": "It is still the one whose etag was named."}}
_MEANINGS = {
    400: "Something in the request makes no sense here, such as an id that can't be one.",
    401: "No access token, or not the one of this server.",
    403: "Not allowed from there.",
    404: "There is no such thing.",
    405: "The path knows other methods.",
    409: "The thing is in a state that does not allow this.",
    422: "The request has not the form that is described here.",
}
_SECURITY = {"bearer": {"type": "http", "scheme": "bearer", "description": "`hawk auth access-token`"}}


def describe(
    answer: Any = None,
    *,
    status: int = 200,
    content: Mapping[str, Described] | None = None,
    takes: Any = None,
    optional: bool = False,
    errors: tuple[int, ...] = (),
    also: Mapping[int, Described] | None = None,
) -> dict[str, Any]:
    """Arguments of a route's decorator that put what it takes and answers into `/openapi.json`.

    Args:
        answer: Type of the JSON that it answers with.
        content: Instead of that, schemas by media type.
        takes: Type of the JSON that it takes.
        optional: It may be left out.
        errors: Statuses of errors beside those that every route has (`install_openapi`).
        also: Other answers, by status.
    """
    if content is None:
        content = {"application/json": schema(answer)}
    described: dict[str, Any] = {
        "status_code": status,
        "response_class": Response,
        "responses": {status: _described("OK", content), **(also or {}), **failures(*errors)},
    }
    if takes is not None:
        body = {"required": not optional, **_described(None, {"application/json": schema(takes)})}
        described["openapi_extra"] = {"requestBody": body}
    return described


def answered(type_: Any, text: str) -> Described:
    """Another answer of a route, in JSON, for `also`."""
    return _described(text, {"application/json": schema(type_)})


def failures(*statuses: int) -> dict[int | str, Described]:
    """Errors, all in the one envelope, for a route's `responses`."""
    return {status: _described(_MEANINGS[status], {PROBLEM: _PROBLEM}) for status in statuses}


def _described(text: str | None, content: Mapping[str, Any]) -> Described:
    found: Described = {"content": {kind: {"schema": schema} for kind, schema in content.items()}}
    return found if text is None else {"description": text, **found}


class _Schema(dict[str, Any]):
    """Stands for a type's schema until the document is made."""

    def __init__(self, type_: Any) -> None:
        super().__init__({"x-type": len(_types)})
        _types.append(type_)


def schema(type_: Any) -> Described:
    """A type's schema, for use in a description."""
    return _Schema(type_)


_types: list[Any] = []
_PROBLEM = _Schema(Problem)


def install_openapi(app: FastAPI) -> None:
    """Make `/openapi.json` name the real types, what every route may answer, and who may ask."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title="Hawk", version=__version__, routes=app.routes, summary=app.summary)
            components = document.setdefault("components", {})
            components["securitySchemes"], document["security"] = _SECURITY, [{"bearer": []}]
            for path, operations in document["paths"].items():
                for operation in operations.values():
                    _complete(operation, open_=path in OPEN_PATHS)
            template = "#/components/schemas/{name}"
            schemas, named = msgspec.json.schema_components(_types, ref_template=template)
            components.setdefault("schemas", {}).update(named)
            _describe_eval_sets(components["schemas"])
            for unused in ("HTTPValidationError", "ValidationError"):
                components["schemas"].pop(unused, None)
            app.openapi_schema = _resolve(document, list(schemas))
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _describe_eval_sets(schemas: dict[str, Any]) -> None:
    """Put what an eval set may hold where a submit only says that it is an object."""
    from hawk.config.schema import json_schema

    text = json.dumps({"EvalSet": json_schema()}).replace('"#/$defs/', '"#/components/schemas/')
    eval_set = json.loads(text)["EvalSet"]
    schemas.update(eval_set.pop("$defs"), EvalSet=eval_set)
    config = schemas["SubmitRequest"]["properties"]["eval_set_config"]
    config["anyOf"] = [{"$ref": "#/components/schemas/EvalSet"}, {"type": "null"}]


def _complete(operation: dict[str, Any], *, open_: bool) -> None:
    """Add what every route may answer."""
    answers = operation["responses"]
    if "HTTPValidationError" in str(answers.get("422")):  # FastAPI's own description
        del answers["422"]
    if open_:
        operation["security"] = []
    general = [403, 405]
    if operation.get("security") != []:
        general.append(401)
    if "requestBody" in operation or any(p["in"] == "query" for p in operation.get("parameters", ())):
        general.append(422)
    for status, answer in failures(*general).items():
        answers.setdefault(str(status), answer)
    answers["5XX"] = _described("A bug, or trouble with the server's disk or database.", {PROBLEM: _PROBLEM})
    operation["responses"] = dict(sorted(answers.items()))


def _resolve(node: Any, schemas: list[Any]) -> Any:
    if isinstance(node, dict):
        if "x-type" in node:
            return schemas[node["x-type"]]
        return {key: _resolve(value, schemas) for key, value in node.items()}
    return [_resolve(value, schemas) for value in node] if isinstance(node, list) else node
