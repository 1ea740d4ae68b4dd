"""What Spark made of a query → the plan of a view. All of it is pure.

In: Spark's plan as a JSON document (`tidemill.views.spark` makes it), and the tables that it reads. Out: a `Plan`, of the embedded engine
or of Spark's with the reason. Read `tree` first, which holds everybody to every field; then `planner`, and `choice`.
"""

from tidemill.views.sql.choice import plan_of

__all__ = ["plan_of"]
