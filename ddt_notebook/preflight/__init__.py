"""The pre-flight report, which contains all checks that are possible before a job runs."""
