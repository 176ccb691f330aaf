"""Simulated worlds: one seed decides everything, time is virtual, and the engines are the real ones."""
