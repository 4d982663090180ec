"""Running a sparse network fast on the CPU."""
