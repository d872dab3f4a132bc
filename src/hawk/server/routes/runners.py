"""Where runners in pods dial in: one WebSocket a job. Its path is in no description: it is not for people."""

from __future__ import annotations

from fastapi import APIRouter, WebSocket

from hawk.link.streams import TakenStream

router = APIRouter()


@router.websocket("/runners/{job_id}/link")
async def link(socket: WebSocket, job_id: str) -> None:
    """The link of a job's runner; the gate has checked its token (`hawk.server.gate`)."""
    await socket.accept()
    await socket.app.state.context.links.take(TakenStream(socket), job_id)
