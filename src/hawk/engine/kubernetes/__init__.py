"""Runs jobs as Kubernetes Jobs: one runner pod a job, watched by one shared watch."""
