"""What `rankdrill explain` and torch's own analyzer are measured on, and how."""
