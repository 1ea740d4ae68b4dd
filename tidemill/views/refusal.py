"""The errors of views."""

from __future__ import annotations

from tidemill.errors import TidemillError


class ViewError(TidemillError):
    """A view cannot be kept: its state, its tables or its log do not allow it."""

    code = "TM:ErrView"


class ViewRefused(ViewError):
    """A query is wrong, or is not one that a view can have."""

    code = "TM:ErrViewQuery"


class ViewStopped(ViewError):
    """A DDL has changed a table of a view so that the view cannot go on."""

    code = "TM:ErrViewStopped"


def refuse(message: str, hint: str = "") -> ViewRefused:
    """Return the error for a query that cannot be a view."""
    return ViewRefused(message, hint=hint)
