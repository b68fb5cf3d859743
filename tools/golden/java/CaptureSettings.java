import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Every key that Apache's servers take from a property file, with its type and default. */
final class CaptureSettings {
    private static final List<String> OF_THE_HOST = List.of("brokerIP1", "brokerIP2", "brokerName");
    private final Golden golden;

    CaptureSettings(Golden golden) {
        this.golden = golden;
    }

    void run() throws Exception {
        Object[] configs = {
            new BrokerConfig(), new MessageStoreConfig(), new NettyServerConfig(), new NettyClientConfig(), new AuthConfig(), new NamesrvConfig()
        };
        List<Object> found = new ArrayList<>();
        for (Object config : configs) {
            found.add(config.getClass().getSimpleName());
            found.add(keys(config));
        }
        golden.json("settings/cases.json", Golden.of(found.toArray()));
    }

    /** Those that MixAll.properties2Object finds, by setters, and those that are only shown. */
    private static Object keys(Object config) throws Exception {
        Properties shown = MixAll.object2Properties(config);
        TreeMap<String, Object> found = new TreeMap<>();
        for (Method method : config.getClass().getMethods()) {
            if (method.getName().startsWith("set") && method.getName().length() > 3 && method.getParameterCount() == 1) {
                String key = method.getName().substring(3, 4).toLowerCase() + method.getName().substring(4);
                String value = OF_THE_HOST.contains(key) ? "" : shown.getProperty(key, "");
                found.put(key, value.replace(System.getProperty("user.home"), "~"));
            }
        }
        for (String key : shown.stringPropertyNames()) {
            found.putIfAbsent(key, shown.getProperty(key));
        }
        return found;
    }
}
