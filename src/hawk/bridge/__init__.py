"""The only code that knows Inspect's private modules and wire formats."""
