"""Kernels of the receive path, from the bytes of EventFeed to sorted Arrow buffers.

    deframe   HTTP/2 frames -> gRPC messages back to back
    scan      messages -> ENTRY records, bounds-checked, copying nothing
    match     ENTRY records -> ROW records of each partition (joins PREWRITE with COMMIT, keeps resolved ts)
    seal      ROW records -> order, without duplicates, cut into batches, gathered into Arrow buffers
    spill     the same for rows and transactions that went to disk meanwhile

Their references are the protobuf library and the plain Python twins beside their tests (tests/capture/tikv/receive, …/sort).

Rules of the family: no exceptions, no allocation, no objects. Bytes may be read up to 63 past a field's end (sources are
padded) and written up to 63 past the end of an output of `gather` (padded as well).
"""
