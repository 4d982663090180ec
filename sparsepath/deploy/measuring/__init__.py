"""How fast networks are, and how much memory they take, side by side."""
