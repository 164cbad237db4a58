"""Samples: what a gather is asked to carry."""
