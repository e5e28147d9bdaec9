"""Levers for tests: what a program over a log has to survive."""
