"""What is left of a job, read and explained: recorded ledgers, and dumps from elsewhere."""
