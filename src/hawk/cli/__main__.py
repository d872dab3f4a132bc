"""`python -m hawk.cli` is `hawk`."""

from hawk.cli import main

main()
