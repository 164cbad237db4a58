"""The parts of `benchmarks/gathers.py`."""
