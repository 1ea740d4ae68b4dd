import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import com.alibaba.otter.canal.connector.core.consumer.CommonMessage;
import com.alibaba.otter.canal.connector.tcp.consumer.CanalTCPConsumer;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.TimeUnit;

/** canal-adapter's loop on its own consumer for TCP. Arguments: HOST:PORT, or zookeeper=HOST:PORT; destination. Prints a line of JSON for
 *  what is synchronized. */
public class AdapterLoop {
  private static final long PAUSE_MS = 50;
  private static final String[] LOST = {"end of stream when reading header", "Connection reset by peer", "Broken pipe"};

  private final CanalTCPConsumer consumer = new CanalTCPConsumer();
  private final Random random = new Random(1);

  public static void main(String[] arguments) throws Exception {
    var loop = new AdapterLoop();
    var properties = new Properties();
    if (arguments[0].startsWith("zookeeper=")) {
      properties.setProperty("canal.tcp.zookeeper.hosts", arguments[0].substring("zookeeper=".length()));
    } else {
      properties.setProperty("canal.tcp.server.host", arguments[0]);
    }
    properties.setProperty("canal.tcp.batch.size", "3");
    loop.consumer.init(properties, arguments[1], "g1");
    while (true) {
      try {
        loop.consumer.connect();
        loop.process();
      } catch (Throwable error) {
        say(Map.of("lost", String.valueOf(error)));
        Thread.sleep(PAUSE_MS);
      }
      try {
        loop.consumer.disconnect();
      } catch (Throwable error) {
        say(Map.of("lost", String.valueOf(error)));
      }
    }
  }

  /** Gets, synchronizes and acknowledges; what fails is rolled back and got again. Returns when the connection is lost. */
  private void process() throws Exception {
    while (true) {
      try {
        List<CommonMessage> messages = consumer.getMessage(100L, TimeUnit.MILLISECONDS);
        if (messages != null) {
          synchronize(messages);
        }
        consumer.ack();
      } catch (Exception error) {
        String text = String.valueOf(error);
        for (String lost : LOST) {
          if (text.contains(lost)) {
            say(Map.of("lost", text));
            return;
          }
        }
        consumer.rollback();
        say(Map.of("rolled_back", text));
        Thread.sleep(PAUSE_MS);
      }
    }
  }

  /** Some fail, as if the target were away. */
  private void synchronize(List<CommonMessage> messages) {
    if (!messages.isEmpty() && random.nextInt(5) == 0) {
      throw new IllegalStateException("the target is away");
    }
    for (CommonMessage message : messages) {
      say(message);
    }
  }

  private static void say(Object what) {
    System.out.println(JSON.toJSONString(what, JSONWriter.Feature.WriteNulls));
  }
}
