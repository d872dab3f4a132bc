"""The link between a runner in a pod and the server: files of the run directory both ways, and questions.

One protocol over any stream of bytes: a WebSocket that the pod opens, or the standard streams of a command that the
server runs in the pod. Frames are in `frames`, who writes which file in `rules`.
"""
