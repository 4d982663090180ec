"""`python -m sparsepath` is the `sparsepath` command."""

from sparsepath.cli import main

main()
