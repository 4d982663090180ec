"""A network in a file: our own artifact, and files for other programs."""
