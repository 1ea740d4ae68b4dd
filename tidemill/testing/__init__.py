"""For tests of what reads TiDB's changes: an upstream in the test's own process, and a comparison of changes.

`Upstream` is a TiDB cluster (the playground's) with a capture into a change log. `assert_changes_equal` compares rows of
`format("tidemill")` with those that a test expects. `tidemill.testing.fixtures` has the first as a pytest fixture.

In: SQL statements. Out: a change log that Spark, `tidemill replay` and Python read. Read `upstream.py` first.
"""

from tidemill.testing.changes import assert_changes_equal
from tidemill.testing.upstream import Upstream

__all__ = ["Upstream", "assert_changes_equal"]
