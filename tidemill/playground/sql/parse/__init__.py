"""The playground's SQL subset, from text to statements. In: SQL. Out: the classes of `ast.py`. Read `parser.py` first."""
