"""A graph on the CPU: plans, programs of native kernels, and their runs."""
