"""What a run found, for people: tables and figures made from its figures alone."""
