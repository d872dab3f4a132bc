"""The Kubernetes API, by a small server of our own that runs commands on this machine."""
