"""Planted bugs: each patch here breaks a promise on purpose, and the nets must catch it. `python -m mutants`.

To plant another, break the source, put `git diff` of it into a file `<what-is-broken>.patch` below two lines that say
what is broken and the number of the guarantee that this breaks, and take the break out again. A bug that no user could
tell from the real thing is none.
"""
