"""Container images without a registry or a daemon: a base, Python packages and Hawk as one tar that clusters load."""
