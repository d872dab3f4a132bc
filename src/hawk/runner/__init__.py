"""Runs jobs: the supervisor, its workers, stop and resume."""
