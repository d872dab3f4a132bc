"""The HTTP server: API routes, and the loops that keep jobs running and their state true."""
