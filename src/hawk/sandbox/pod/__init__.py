"""Sandboxes on a Kubernetes cluster: one pod per attempt, made by its API alone."""
