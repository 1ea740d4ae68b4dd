import com.alibaba.otter.canal.common.AbstractCanalLifeCycle;
import com.alibaba.otter.canal.common.alarm.LogAlarmHandler;
import com.alibaba.otter.canal.instance.core.AbstractCanalInstance;
import com.alibaba.otter.canal.meta.MemoryMetaManager;
import com.alibaba.otter.canal.parse.CanalEventParser;
import com.alibaba.otter.canal.protocol.CanalEntry;
import com.alibaba.otter.canal.protocol.position.LogIdentity;
import com.alibaba.otter.canal.server.embedded.CanalServerWithEmbedded;
import com.alibaba.otter.canal.server.netty.CanalServerWithNetty;
import com.alibaba.otter.canal.sink.CanalEventSink;
import com.alibaba.otter.canal.store.memory.MemoryEventStoreWithBuffer;
import com.alibaba.otter.canal.store.model.Event;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.util.Base64;

/** Canal's server with destination d, whose entries are lines of base64 on stdin instead of a binlog. Arguments: port and canal.passwd. */
public class RealCanal {
  static class Parser extends AbstractCanalLifeCycle implements CanalEventParser {}

  static class Instance extends AbstractCanalInstance {
    Instance(MemoryEventStoreWithBuffer store) {
      destination = "d";
      canalId = 1L;
      eventStore = store;
      metaManager = new MemoryMetaManager();
      alarmHandler = new LogAlarmHandler();
      eventParser = new Parser();
      eventSink = (CanalEventSink) Proxy.newProxyInstance(RealCanal.class.getClassLoader(), new Class[] {CanalEventSink.class},
          (proxy, method, arguments) -> method.getReturnType() == boolean.class ? (Object) Boolean.TRUE : null);
    }
  }

  public static void main(String[] arguments) throws Exception {
    var store = new MemoryEventStoreWithBuffer();
    store.setRaw(true);
    var instance = new Instance(store);
    var embedded = CanalServerWithEmbedded.instance();
    embedded.setCanalInstanceGenerator(destination -> instance);
    embedded.setUser("canal");
    embedded.setPasswd(arguments[1]);
    var server = CanalServerWithNetty.instance();
    server.setIp("127.0.0.1");
    server.setPort(Integer.parseInt(arguments[0]));
    server.start();
    embedded.start("d");
    System.out.println("ready");
    var source = new LogIdentity(new InetSocketAddress("127.0.0.1", 3306), 1L);
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      store.put(new Event(source, CanalEntry.Entry.parseFrom(Base64.getDecoder().decode(line)), true));
    }
    System.exit(0);
  }
}
