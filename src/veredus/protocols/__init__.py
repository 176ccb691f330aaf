"""The dialects: each turns its wire into the exchange of `veredus.streams` and back."""
