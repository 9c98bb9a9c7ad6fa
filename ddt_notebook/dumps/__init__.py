"""Reads what a job left behind, such as the Flight Recorder's dumps, as a snapshot."""
