"""Views of runs and findings, as text for a terminal and as HTML for a notebook."""
