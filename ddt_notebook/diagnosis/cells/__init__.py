"""What the source of the cells says: statements, conditions, and where values go."""
