"""The driver of a delivery: one batch after the other.

In: an interval of the change log, settings of the changefeed. Out: work items for tasks, then DDLs and resolved events to the sink.
`machine/` decides what is done next and what follows from a failure; `batch.py` does it. `plan.py` divides a batch among tasks,
`epoch_fence.py` ends tasks of older attempts. `inputs/` is what a batch needs to know, `task/` what workers do.
Read `machine/batch_machine.py`, then `batch.py`.

The loop (`loop.py`), and a batch that meets no failure (`batch.py` carries out what `machine/batch_machine.py` asks for):

    while not driver.reached and not stop.is_set():
        begin = driver.delivered
        end = clock.next(begin)                          # at most the log's resolved ts; a DDL is the end of its batch
        if end == begin:
            heads.wait(*clock.until_due(begin))
            continue
        source.follow(end)                               # schemas up to the end
        epoch = fence.advance(plan)                      # the interval is durable before any of it is delivered
        sink.begin_batch(context)
        results = runner.run(items)                      # one job of Spark; each task checks the fence before it sends
        fence.check(now=True)
        for ddl in source.ddl_events(begin, end): sink.ddl(ddl)
        sink.resolved(end)
        sink.finish_batch(context)                       # everything is acknowledged
        save(end)                                        # checkpoint.json; then the log may forget

What always holds:

    DEL1  A batch that is begun again, by whatever process, has the same interval: the fence has it before the first row is sent.
    DEL2  Each attempt has an epoch of its own, above all before it. Tasks and drivers of an older epoch stop (`epoch_fence.py`).
    DEL3  Rows are acknowledged before a DDL or the resolved event of their batch is sent, and all of them before the checkpoint is saved.
    DEL4  The checkpoint never passes what the sink has acknowledged. The log is told durable checkpoints only (`SavedPosition`).
    DEL5  A failed attempt is discarded before the next one begins; it leaves nothing that a later one would publish.
    DEL6  The schemas up to a batch's end are known before its rows are planned: a task asks nobody.
    DEL7  A failure ends an attempt, not the interval: the next attempt delivers all of it again.
"""
