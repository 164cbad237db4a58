"""Collectives: what ranks agree on in each, and how their sequences of calls lie to each other."""
