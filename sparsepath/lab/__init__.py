"""What the paper's experiments need and the method does not: networks, data, training and runs."""
