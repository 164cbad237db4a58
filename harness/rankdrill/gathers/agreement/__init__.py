"""How ranks agree: where each was called, what each tells in its slot, and what they raise together."""
