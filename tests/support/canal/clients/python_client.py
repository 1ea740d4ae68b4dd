"""canal-python as a process: each line of stdin is a command, its words divided by tabs; each is answered with a line of JSON.

It runs without Tidemill's environment: only canal-python and its protobuf are there.
"""

import json
import sys

from canal.client import Client  # type: ignore[import-not-found]
from canal.protocol.EntryProtocol_pb2 import EntryType, EventType, RowChange, TransactionEnd, Type  # type: ignore[import-not-found]


def column(one):  # type: ignore[no-untyped-def]
    return [one.index, one.sqlType, one.name, one.isKey, one.updated, None if one.isNull else one.value, one.mysqlType]


def told(entry):  # type: ignore[no-untyped-def]
    """What its fields say."""
    header = entry.header
    found = {
        "type": EntryType.Name(entry.entryType),
        "version": header.version,
        "file": header.logfileName,
        "offset": header.logfileOffset,
        "server_id": header.serverId,
        "charset": header.serverenCode,
        "execute_time": header.executeTime,
        "source": Type.Name(header.sourceType),
        "schema": header.schemaName,
        "table": header.tableName,
        "event_length": header.eventLength,
        "event_type": EventType.Name(header.eventType or EventType.UPDATE),
        "props": [[pair.key, pair.value] for pair in header.props],
    }
    if entry.entryType == EntryType.TRANSACTIONEND:
        found["transaction_id"] = TransactionEnd.FromString(entry.storeValue).transactionId
    if entry.entryType == EntryType.ROWDATA:
        change = RowChange.FromString(entry.storeValue)
        found.update(kind=change.eventType, ddl=change.isDdl, sql=change.sql, ddl_schema=change.ddlSchemaName, table_id=change.tableId)
        found["rows"] = [[[column(c) for c in row.beforeColumns], [column(c) for c in row.afterColumns]] for row in change.rowDatas]
    return found


def main(answers):  # type: ignore[no-untyped-def]
    client, destination = Client(), b""
    where, login = ("", 0), (b"", b"")
    for line in sys.stdin:
        word, *rest = line.rstrip("\n").split("\t")
        answer = {}
        try:
            if word == "open":
                client, where, destination = Client(), (rest[0], int(rest[1])), rest[2].encode()
                login = (rest[3].encode(), rest[4].encode())
            elif word == "connect":
                client.connect(*where)
                client.check_valid(*login)
            elif word == "subscribe":
                client.subscribe(client_id=b"1001", destination=destination, filter=rest[0].encode())
            elif word == "get-without-ack":
                batch = client.get_without_ack(int(rest[0]), int(rest[1]) if rest[1:] else -1)
                answer = {"id": batch["id"], "entries": [told(entry) for entry in batch["entries"]]}
            elif word == "ack":
                client.ack(int(rest[0]))
            elif word == "rollback":
                client.rollback(int(rest[0]) if rest else 0)
            elif word == "disconnect":
                client.disconnect()
            else:
                raise ValueError(word)
        except Exception as error:  # canal-python raises nothing narrower
            answer = {"error": repr(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    answers, sys.stdout = sys.stdout, sys.stderr  # canal-python prints
    main(answers)
