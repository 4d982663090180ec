"""Removing what a sparse network no longer needs, with the same function."""
