"""What the flight recorder keeps, as data: trace lines, stacks, and what they say. Pure."""
