"""The pre-flight report: what can be checked before a job runs."""
