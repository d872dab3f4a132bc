"""Pure: states, plans, status, statistics. No I/O, no clock except one passed in."""
