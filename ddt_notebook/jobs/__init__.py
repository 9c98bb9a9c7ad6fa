"""Jobs that were started in a shell: what can be seen of them from outside."""
