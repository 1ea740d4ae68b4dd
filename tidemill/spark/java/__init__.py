"""What makes Spark's Java start sooner: an archive of the classes that it loads.

In: the Java and the Spark in use. Out: the archive, and the environment variable that names it. Read `archive.py` first.
"""
