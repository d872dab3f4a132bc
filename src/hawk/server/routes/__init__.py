"""One module a path prefix."""
