"""Folder evals: a directory for each eval, with its task, its files and its scorer."""
