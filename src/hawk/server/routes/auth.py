"""Who one is. This server has one token and asks nobody else, so there is nowhere to sign in."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from fastapi.responses import Response

from hawk.config.token import ISSUER, current_user, token_user
from hawk.server.context import Ctx
from hawk.server.wire import describe, reply

router = APIRouter(prefix="/auth", tags=["auth"])


class AuthConfig(msgspec.Struct):
    """What the public client asks for before it sends a token. Empty: not used here."""

    issuer: str = ISSUER
    audience: str = ""
    client_id: str = ISSUER
    scopes: str = ""
    scopes_supported: list[str] = []
    authorization_endpoint: str = ""
    device_authorization_endpoint: str = ""
    jwks_uri: str = ""
    token_endpoint: str = ""
    log_viewer_url: str = ""
    middleman_url: str = ""
    login_needed: bool = False


class Me(msgspec.Struct):
    """Whose token it is; `sub` and `email` are the public client's words."""

    user: str
    sub: str
    email: str | None = None
    is_admin: bool = True


@router.get("/config", **describe(AuthConfig))
async def auth_config() -> Response:
    """How to sign in: not at all."""
    return reply(AuthConfig())


@router.get("/me", **describe(Me))
def me(ctx: Ctx) -> Response:
    """Whose token the request bears."""
    user = token_user(ctx.token) or current_user()
    return reply(Me(user=user, sub=user))
