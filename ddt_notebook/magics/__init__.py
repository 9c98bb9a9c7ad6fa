"""The notebook's commands: each parses its line, calls the Python API and returns a view."""
