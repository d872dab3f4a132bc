"""Conformance: the public `hawk` client against our server."""
