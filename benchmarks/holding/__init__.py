"""Rankdrill's own gathers with one mistake each, and what the conformance kit says of them."""
