"""What was found, as text for a terminal and as HTML for a notebook. Data in, text out."""
