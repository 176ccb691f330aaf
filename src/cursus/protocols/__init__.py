"""The dialects: each turns its wire into the exchange of `cursus.streams` and back."""
