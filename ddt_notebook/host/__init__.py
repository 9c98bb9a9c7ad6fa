"""How ranks live: real processes that run cells, are watched, and are freed when they hang."""
