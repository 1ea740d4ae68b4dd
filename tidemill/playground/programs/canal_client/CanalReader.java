import com.alibaba.otter.canal.client.CanalConnectors;
import com.alibaba.otter.canal.client.impl.SimpleCanalConnector;
import com.alibaba.otter.canal.protocol.CanalEntry.Column;
import com.alibaba.otter.canal.protocol.CanalEntry.Entry;
import com.alibaba.otter.canal.protocol.CanalEntry.EntryType;
import com.alibaba.otter.canal.protocol.CanalEntry.Header;
import com.alibaba.otter.canal.protocol.CanalEntry.Pair;
import com.alibaba.otter.canal.protocol.CanalEntry.RowChange;
import com.alibaba.otter.canal.protocol.CanalEntry.RowData;
import com.alibaba.otter.canal.protocol.CanalEntry.TransactionEnd;
import com.alibaba.otter.canal.protocol.Message;
import com.google.protobuf.ByteString;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Canal's Java client as a process: each line of stdin is a command, its words divided by tabs; each is answered with a line of JSON. */
public class CanalReader {
  private SimpleCanalConnector connector;
  private boolean lazy;

  public static void main(String[] none) throws Exception {
    var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    var reader = new CanalReader();
    var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String answer;
      try {
        answer = reader.run(line.split("\t", -1));
      } catch (Exception error) {
        answer = "{\"error\":" + text(error + (error.getCause() == null ? "" : ": " + error.getCause())) + "}";
      }
      answers.println(answer);
    }
  }

  private String run(String[] words) throws Exception {
    switch (words[0]) {
      case "open": // HOST PORT DESTINATION USER PASSWORD
        connector = (SimpleCanalConnector)
            CanalConnectors.newSingleConnector(new InetSocketAddress(words[1], Integer.parseInt(words[2])), words[3], words[4], words[5]);
        connector.setLazyParseEntry(lazy);
        return "{}";
      case "lazy":
        lazy = Boolean.parseBoolean(words[1]);
        return "{}";
      case "rollback-on-connect":
        connector.setRollbackOnConnect(Boolean.parseBoolean(words[1]));
        return "{}";
      case "connect":
        connector.connect();
        return "{}";
      case "subscribe": // FILTER
        connector.subscribe(words[1]);
        return "{}";
      case "unsubscribe":
        connector.unsubscribe();
        return "{}";
      case "get": // SIZE: acknowledged by the client at once
        return batch(connector.get(Integer.parseInt(words[1])));
      case "get-without-ack": // SIZE [MILLISECONDS]
        int size = Integer.parseInt(words[1]);
        return batch(words.length < 3
            ? connector.getWithoutAck(size)
            : connector.getWithoutAck(size, Long.parseLong(words[2]), TimeUnit.MILLISECONDS));
      case "ack":
        connector.ack(Long.parseLong(words[1]));
        return "{}";
      case "rollback": // [ID]
        if (words.length < 2) {
          connector.rollback();
        } else {
          connector.rollback(Long.parseLong(words[1]));
        }
        return "{}";
      case "disconnect":
        connector.disconnect();
        return "{}";
      default:
        throw new IllegalArgumentException("unknown command " + words[0]);
    }
  }

  private String batch(Message message) throws Exception {
    var entries = new ArrayList<String>();
    if (message.isRaw()) {
      for (ByteString raw : message.getRawEntries()) {
        entries.add(entry(Entry.parseFrom(raw)));
      }
    } else {
      for (Entry one : message.getEntries()) {
        entries.add(entry(one));
      }
    }
    return "{\"id\":" + message.getId() + ",\"raw\":" + message.isRaw() + ",\"entries\":" + list(entries) + "}";
  }

  /** What the client's getters say about an entry. */
  static String entry(Entry entry) throws Exception {
    Header header = entry.getHeader();
    var props = new ArrayList<String>();
    for (Pair pair : header.getPropsList()) {
      props.add("[" + text(pair.getKey()) + "," + text(pair.getValue()) + "]");
    }
    var out = new StringBuilder("{\"type\":").append(text(entry.getEntryType().name()));
    out.append(",\"version\":").append(header.getVersion()).append(",\"file\":").append(text(header.getLogfileName()));
    out.append(",\"offset\":").append(header.getLogfileOffset()).append(",\"server_id\":").append(header.getServerId());
    out.append(",\"charset\":").append(text(header.getServerenCode())).append(",\"execute_time\":").append(header.getExecuteTime());
    out.append(",\"source\":").append(text(header.getSourceType().name())).append(",\"schema\":").append(text(header.getSchemaName()));
    out.append(",\"table\":").append(text(header.getTableName())).append(",\"event_length\":").append(header.getEventLength());
    out.append(",\"event_type\":").append(text(header.getEventType().name())).append(",\"props\":").append(list(props));
    if (entry.getEntryType() == EntryType.TRANSACTIONEND) {
      out.append(",\"transaction_id\":").append(text(TransactionEnd.parseFrom(entry.getStoreValue()).getTransactionId()));
    }
    if (entry.getEntryType() == EntryType.ROWDATA) {
      RowChange change = RowChange.parseFrom(entry.getStoreValue());
      var rows = new ArrayList<String>();
      for (RowData row : change.getRowDatasList()) {
        rows.add("[" + columns(row.getBeforeColumnsList()) + "," + columns(row.getAfterColumnsList()) + "]");
      }
      out.append(",\"kind\":").append(change.getEventType().getNumber()).append(",\"ddl\":").append(change.getIsDdl());
      out.append(",\"sql\":").append(text(change.getSql())).append(",\"ddl_schema\":").append(text(change.getDdlSchemaName()));
      out.append(",\"table_id\":").append(change.getTableId()).append(",\"rows\":").append(list(rows));
    }
    return out.append("}").toString();
  }

  private static String columns(List<Column> columns) {
    var found = new ArrayList<String>();
    for (Column column : columns) {
      found.add("[" + column.getIndex() + "," + column.getSqlType() + "," + text(column.getName()) + "," + column.getIsKey() + ","
          + column.getUpdated() + "," + (column.getIsNull() ? "null" : text(column.getValue())) + "," + text(column.getMysqlType()) + "]");
    }
    return list(found);
  }

  static String list(List<String> parts) {
    return "[" + String.join(",", parts) + "]";
  }

  /** A text in JSON. */
  static String text(String value) {
    var out = new StringBuilder("\"");
    for (int at = 0; at < value.length(); at++) {
      char one = value.charAt(at);
      if (one == '"' || one == '\\') {
        out.append('\\').append(one);
      } else if (one < 0x20 || one > 0x7e) {
        out.append(String.format("\\u%04x", (int) one));
      } else {
        out.append(one);
      }
    }
    return out.append('"').toString();
  }
}
