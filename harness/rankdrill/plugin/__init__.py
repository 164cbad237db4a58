"""The pytest plugin: a test on N ranks, one honest verdict."""
