import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.client.kafka.KafkaCanalConnector;
import com.alibaba.otter.canal.protocol.CanalEntry.Column;
import com.alibaba.otter.canal.protocol.CanalEntry.Entry;
import com.alibaba.otter.canal.protocol.CanalEntry.EntryType;
import com.alibaba.otter.canal.protocol.CanalEntry.RowChange;
import com.alibaba.otter.canal.protocol.CanalEntry.RowData;
import com.alibaba.otter.canal.protocol.FlatMessage;
import com.alibaba.otter.canal.protocol.Message;
import com.google.protobuf.ByteString;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Canal's connector for Kafka as a process: commands on stdin as lines of words divided by tabs, each answered with a line of JSON. */
public class KafkaReader {
  private static final long TIMEOUT_MS = 5000;

  private KafkaCanalConnector connector;

  public static void main(String[] none) throws Exception {
    var reader = new KafkaReader();
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      Object answer;
      try {
        answer = reader.run(line.split("\t", -1));
      } catch (Exception error) {
        answer = Map.of("error", String.valueOf(error));
      }
      System.out.println(JSON.toJSONString(answer, JSONWriter.Feature.WriteNulls));
    }
  }

  private Object run(String[] words) throws Exception {
    switch (words[0]) {
      case "open": // BROKERS TOPIC GROUP FLAT MESSAGES-AT-ONCE
        int most = Integer.parseInt(words[5]);
        connector = new KafkaCanalConnector(words[1], words[2], null, words[3], most, Boolean.parseBoolean(words[4])) {
          {
            properties.put("auto.offset.reset", "earliest"); // Canal's begins with what comes next
          }
        };
        connector.connect();
        connector.subscribe();
        return Map.of();
      case "packets":
        var packets = new ArrayList<Object>();
        for (Message message : connector.getListWithoutAck(TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
          packets.add(entries(message));
        }
        return Map.of("messages", packets);
      case "flat":
        var flat = new ArrayList<Object>();
        for (FlatMessage message : connector.getFlatListWithoutAck(TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
          flat.add(message);
        }
        return Map.of("messages", flat);
      case "ack":
        connector.ack();
        return Map.of();
      case "rollback":
        connector.rollback();
        return Map.of();
      case "disconnect":
        connector.disconnect();
        return Map.of();
      default:
        throw new IllegalArgumentException("unknown command " + words[0]);
    }
  }

  private static List<Object> entries(Message message) throws Exception {
    var entries = new ArrayList<Object>();
    if (message.isRaw()) {
      for (ByteString raw : message.getRawEntries()) {
        entries.add(entry(Entry.parseFrom(raw)));
      }
    } else {
      for (Entry one : message.getEntries()) {
        entries.add(entry(one));
      }
    }
    return entries;
  }

  private static Object entry(Entry entry) throws Exception {
    var found = new HashMap<String, Object>();
    found.put("type", entry.getEntryType().name());
    found.put("schema", entry.getHeader().getSchemaName());
    found.put("table", entry.getHeader().getTableName());
    if (entry.getEntryType() == EntryType.ROWDATA) {
      RowChange change = RowChange.parseFrom(entry.getStoreValue());
      var rows = new ArrayList<Object>();
      for (RowData row : change.getRowDatasList()) {
        rows.add(Arrays.asList(columns(row.getBeforeColumnsList()), columns(row.getAfterColumnsList())));
      }
      found.put("kind", change.getEventType().name());
      found.put("ddl", change.getIsDdl());
      found.put("sql", change.getSql());
      found.put("rows", rows);
    }
    return found;
  }

  private static List<Object> columns(List<Column> columns) {
    var found = new ArrayList<Object>();
    for (Column one : columns) {
      found.add(Arrays.asList(one.getName(), one.getIsNull() ? null : one.getValue(), one.getMysqlType(), one.getIsKey()));
    }
    return found;
  }
}
