"""The web page of a server, and what it and `tidemill top` show: a description of everything, the lag of the last hour, the log's end.

In: a `ChangefeedService`, or the status of a `tidemill run`; lines of the log. Out: JSON for the page and the terminal, and the page's own
files (`static/`: plain HTML, CSS and ES modules, served as they are). Read `overview.py` first: all that is shown is in its answer. Then
`watch.py`, which keeps it up to date. Who serves it: `server/api/routes/page.py`, and for a run `of_run.py`.
"""
