"""What is left of jobs, explained."""
