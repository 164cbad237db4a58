"""The pytest plugin: a test on N ranks, one verdict."""
