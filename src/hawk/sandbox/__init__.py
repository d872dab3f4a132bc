"""Sandboxes of our own for Inspect: where attempts run what a model wrote."""
