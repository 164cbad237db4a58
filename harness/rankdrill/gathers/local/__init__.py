"""Ranks of one machine: how they find one another, the page they share, and segments that payloads lie in."""
