"""The middleman: the authenticating proxy between workers and model providers, in a process of its own."""
