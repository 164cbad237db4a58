"""Questions: what a gather is asked."""
