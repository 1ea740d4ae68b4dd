"""Kernels of the receive path, from the bytes of EventFeed to sorted Arrow buffers.

    deframe   HTTP/2 frames -> concatenated gRPC messages
    scan      messages -> ENTRY records, bounds-checked, without copies
    match     ENTRY records -> ROW records of each partition (joins PREWRITE with COMMIT, keeps resolved ts)
    seal      ROW records -> order, without duplicates, cut into batches, gathered into Arrow buffers
    spill     the same for rows and transactions on disk

Their references are the protobuf library, and the plain Python twins beside their tests (tests/capture/tikv/receive, …/sort).

Rules for all of them: no exceptions, no allocation, no objects. They may read up to 63 bytes past a field's end (sources are padded), and
`gather` may write up to 63 bytes past the end of an output (padded too).

In: bytes of streams. Out: Arrow buffers of segments. Read `layout.py`, then `match.py`.
"""
