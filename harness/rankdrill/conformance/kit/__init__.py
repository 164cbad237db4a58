"""The kit: asks anybody's gather what it promises, question by question."""
