"""Bodies in and out as msgspec structs, and their schemas for `/openapi.json`."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import Response

from hawk import __version__
from hawk.server.errors import InvalidRequestError

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


def describe(answer: Any, *, status: int = 200, takes: Any = None) -> dict[str, Any]:
    """Arguments of a route's decorator that put the types of its bodies into `/openapi.json`."""
    content = {"application/json": {"schema": _Schema(answer)}}
    described: dict[str, Any] = {
        "status_code": status,
        "response_class": Response,
        "responses": {status: {"description": "OK", "content": content}},
    }
    if takes is not None:
        content = {"application/json": {"schema": _Schema(takes)}}
        described["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return described


class _Schema(dict[str, Any]):
    """Stands for a type's schema until the document is made."""

    def __init__(self, type_: Any) -> None:
        super().__init__({"x-type": len(_types)})
        _types.append(type_)


_types: list[Any] = []


def install_openapi(app: FastAPI) -> None:
    """Make `/openapi.json` name the real types, and one error for all routes."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(title="Hawk", version=__version__, routes=app.routes, summary=app.summary)
            template = "#/components/schemas/{name}"
            schemas, components = msgspec.json.schema_components([*_types, Problem], ref_template=template)
            document.setdefault("components", {}).setdefault("schemas", {}).update(components)
            problem = {"application/problem+json": {"schema": schemas[-1]}}
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
                    operation["responses"]["default"] = {"description": "An error", "content": problem}
            app.openapi_schema = _resolve(document, list(schemas))
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _resolve(node: Any, schemas: list[Any]) -> Any:
    if isinstance(node, dict):
        if "x-type" in node:
            return schemas[node["x-type"]]
        return {key: _resolve(value, schemas) for key, value in node.items()}
    return [_resolve(value, schemas) for value in node] if isinstance(node, list) else node
