"""Complaints: what is wrong with the answer to a question, in words."""
