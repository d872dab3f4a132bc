"""Hawk: agent and model evaluations, many attempts at once, never stuck without a reason."""

__version__ = "0.1.0"
