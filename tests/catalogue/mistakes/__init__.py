"""Programs with exactly one mistake each, a file for each family of them."""
