"""Veredus beside what a Python user would pick instead, measured in turn in one run."""
