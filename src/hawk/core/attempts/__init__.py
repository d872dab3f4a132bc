"""Attempts: which run and when, what came of them, and what follows from that. Pure."""
