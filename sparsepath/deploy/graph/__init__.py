"""A network as a graph of named operations, and that graph as a torch module again."""
