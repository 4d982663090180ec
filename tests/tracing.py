"""Tests whose lines are not traced: others of the same lines are quicker to trace."""

import pytest

# Tracing doubles the time of Python that is called often, torch's above all.
untraced = pytest.mark.no_cover
