"""What `benchmarks/mutants.py` is made of."""
