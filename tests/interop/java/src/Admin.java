import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;

/** Commands that ask rather than send: create, lag, route, queues, offsets, query, unique, view; and mqadmin. */
final class Admin {
    private static final long TIMEOUT_MS = 30_000;
    private final Producers producers;
    private final OffsetAdmin offsets;

    Admin(Producers producers) {
        this.producers = producers;
        this.offsets = new OffsetAdmin(producers);
    }

    Object run(String command, Driver.Arguments arguments) throws Exception {
        Object found = offsets.run(command, arguments);
        if (found != null) {
            return found;
        }
        if (command.equals("mqadmin")) {
            return mqadmin(arguments);
        }
        if (!List.of("create", "lag", "route", "queues", "offsets", "query", "unique", "view").contains(command)) {
            return null;
        }
        DefaultMQProducer producer = producers.find(arguments.text("name"));
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        String topic = arguments.text("topic");
        switch (command) {
            case "create":
                client.getMQClientAPIImpl().createTopic(arguments.text("address"), "TBW102",
                        new TopicConfig(topic, arguments.number("queues", 4), arguments.number("queues", 4), 6),
                        TIMEOUT_MS);
                return Collections.singletonMap("created", topic);
            case "lag":
                return lag(client, arguments);
            case "route":
                return route(client, topic);
            case "queues":
                return Collections.singletonMap("queues", Shapes.queues(producer.fetchPublishMessageQueues(topic)));
            case "offsets":
                return offsets(producer, topic, arguments);
            case "query":
                return Collections.singletonMap("messages", Shapes.messages(producer.queryMessage(
                        topic, arguments.text("key"), 32, 0, Long.MAX_VALUE).getMessageList()));
            case "unique":
                return Collections.singletonMap("messages", Shapes.messages(List.of(
                        client.getMQAdminImpl().queryMessageByUniqKey(topic, arguments.text("id")))));
            default:
                return Collections.singletonMap("messages", Shapes.messages(List.of(
                        producer.viewMessage(topic, arguments.text("id")))));
        }
    }

    private Object lag(MQClientInstance client, Driver.Arguments arguments) throws Exception {
        Map<String, Object> queues = new LinkedHashMap<>();
        long behind = 0;
        var api = client.getMQClientAPIImpl();
        var route = api.getTopicRouteInfoFromNameServer(arguments.text("topic"), TIMEOUT_MS);
        for (var broker : route.getBrokerDatas()) {
            var stats = api.getConsumeStats(
                    broker.selectBrokerAddr(), arguments.text("group"), arguments.text("topic"), TIMEOUT_MS);
            behind += stats.computeTotalDiff();
            for (var entry : stats.getOffsetTable().entrySet()) {
                Map<String, Object> shape = new LinkedHashMap<>();
                shape.put("broker", entry.getValue().getBrokerOffset());
                shape.put("consumer", entry.getValue().getConsumerOffset());
                shape.put("last", entry.getValue().getLastTimestamp());
                queues.put(entry.getKey().getBrokerName() + "@" + entry.getKey().getQueueId(), shape);
            }
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("lag", behind);
        answer.put("queues", queues);
        return answer;
    }

    private Object route(MQClientInstance client, String topic) throws Exception {
        var route = client.getMQClientAPIImpl().getTopicRouteInfoFromNameServer(topic, TIMEOUT_MS);
        List<Object> queues = new ArrayList<>();
        for (var data : route.getQueueDatas()) {
            Map<String, Object> shape = new LinkedHashMap<>();
            shape.put("brokerName", data.getBrokerName());
            shape.put("read", data.getReadQueueNums());
            shape.put("write", data.getWriteQueueNums());
            shape.put("perm", data.getPerm());
            queues.add(shape);
        }
        List<Object> brokers = new ArrayList<>();
        for (var data : route.getBrokerDatas()) {
            Map<String, Object> shape = new LinkedHashMap<>();
            shape.put("cluster", data.getCluster());
            shape.put("brokerName", data.getBrokerName());
            shape.put("addresses", data.getBrokerAddrs());
            brokers.add(shape);
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("queues", queues);
        answer.put("brokers", brokers);
        return answer;
    }

    private Object offsets(DefaultMQProducer producer, String topic, Driver.Arguments arguments) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
            Map<String, Object> shape = new LinkedHashMap<>();
            shape.put("min", producer.minOffset(queue));
            shape.put("max", producer.maxOffset(queue));
            shape.put("earliest", producer.earliestMsgStoreTime(queue));
            if (arguments.has("at")) {
                shape.put("search", producer.searchOffset(queue, arguments.big("at", 0)));
            }
            answer.put(queue.getBrokerName() + "@" + queue.getQueueId(), shape);
        }
        return answer;
    }

    /** Runs Apache's mqadmin in this process; only where rocketmq-tools is on the class path. */
    private Object mqadmin(Driver.Arguments arguments) throws Exception {
        List<String> words = new ArrayList<>(arguments.below("word.").values());
        PrintStream before = System.out;
        PrintStream errorsBefore = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        boolean tls = TlsSystemConfig.tlsEnable;
        try {
            TlsSystemConfig.tlsEnable = Doors.tls(arguments);
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
            Class.forName("org.apache.rocketmq.tools.command.MQAdminStartup")
                    .getMethod("main0", String[].class, RPCHook.class)
                    .invoke(null, words.toArray(new String[0]), Doors.hook(arguments));
        } finally {
            TlsSystemConfig.tlsEnable = tls;
            System.setOut(before);
            System.setErr(errorsBefore);
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("out", printed.toString(StandardCharsets.UTF_8));
        answer.put("err", complained.toString(StandardCharsets.UTF_8));
        return answer;
    }
}
