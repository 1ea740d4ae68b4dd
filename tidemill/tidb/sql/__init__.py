"""The SQL lexer: text in, tokens out, and the keywords that it knows. The DDL printer and the playground use it.

In: text. Out: tokens. Read `lexer.py`.
"""
