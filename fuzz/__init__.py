"""Garbage for the decoders: each target accepts what it is given or raises `PeerFault`, and nothing else."""
