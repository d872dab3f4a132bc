"""Run directories, and the database that indexes them."""
