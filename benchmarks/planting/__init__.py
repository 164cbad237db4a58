"""Mistakes that hand-written gathers make, planted, and how soon draws find them."""
