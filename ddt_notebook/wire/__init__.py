"""What travels between the notebook and its ranks, and how."""
