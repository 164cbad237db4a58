"""Point to point: the two ends of each message, and what is wrong where they do not meet."""
