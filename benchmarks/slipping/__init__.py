"""Slips put into correct programs, one at a time, on one rank: what is made of them, and what a verdict on one is worth."""
