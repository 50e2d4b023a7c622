"""Source text from a linear program, one file a language.

In:  a linear program.
Out: source of one function, the same text for the same program.
"""
