"""The rules: each turns a prepared snapshot into findings, and knows one kind of fault."""
