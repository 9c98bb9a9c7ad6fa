"""The messages between the notebook and its ranks, and how they are sent."""
