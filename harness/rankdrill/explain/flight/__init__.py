"""Dumps of torch's flight recorder: read without running anything, and explained."""
