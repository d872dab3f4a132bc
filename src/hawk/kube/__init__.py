"""The Kubernetes API: requests, one shared watch, commands in pods, and what its objects say went wrong."""
