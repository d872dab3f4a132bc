"""Evals in directories of their own; sandboxes come from the sandbox tests' fixtures."""

from __future__ import annotations

from tests.sandbox.conftest import home, supported

__all__ = ["home", "supported"]
