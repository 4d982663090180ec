"""From a user's model to a graph."""
