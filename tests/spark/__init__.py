"""Tests with Spark: a package, so that its modules may have the names of others in tests/."""
