"""Traffic to model providers: who may send now, what it costs, when a provider counts as broken. Pure."""
