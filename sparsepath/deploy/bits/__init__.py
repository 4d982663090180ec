"""Fewer bits for each weight: levels of 8 bits, and shared numbers."""
