"""What the server does over time: one module a concern."""
