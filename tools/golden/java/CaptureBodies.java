import com.alibaba.fastjson2.JSONWriter;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.admin.TopicOffset;
import org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.body.ConsumerOffsetSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.body.RegisterBrokerBody;
import org.apache.rocketmq.remoting.protocol.body.ResetOffsetBody;
import org.apache.rocketmq.remoting.protocol.body.SubscriptionGroupWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigAndMappingSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumeType;
import org.apache.rocketmq.remoting.protocol.heartbeat.ConsumerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.HeartbeatData;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.protocol.heartbeat.ProducerData;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** Bodies as fastjson writes them, and the queue allocation of Apache's strategies. */
final class CaptureBodies {
    private final Golden golden;

    CaptureBodies(Golden golden) {
        this.golden = golden;
    }

    void run() throws Exception {
        routes();
        registration();
        groups();
        stats();
        defaults();
        allocation();
    }

    private void body(String name, Object value) throws Exception {
        golden.raw("json_body/" + name + ".body", RemotingSerializable.encode(value));
        golden.raw("json_body/" + name + ".pretty", RemotingSerializable.toJson(value, true).getBytes(StandardCharsets.UTF_8));
    }

    private static DataVersion version() {
        DataVersion found = new DataVersion();
        found.setStateVersion(3);
        found.setTimestamp(1700000000000L);
        found.setCounter(new AtomicLong(5));
        return found;
    }

    private static BrokerData broker(String name, int port) {
        HashMap<Long, String> addresses = new HashMap<>();
        addresses.put(0L, "10.0.0.1:" + port);
        addresses.put(1L, "10.0.0.2:" + port);
        return new BrokerData("DefaultCluster", name, addresses);
    }

    private static QueueData queues(String broker) {
        QueueData found = new QueueData();
        found.setBrokerName(broker);
        found.setReadQueueNums(8);
        found.setWriteQueueNums(4);
        found.setPerm(6);
        return found;
    }

    private void routes() throws Exception {
        TopicRouteData route = new TopicRouteData();
        route.setOrderTopicConf("broker-a:4;broker-b:4");
        route.setQueueDatas(new ArrayList<>(List.of(queues("broker-a"), queues("broker-ü"))));
        route.setBrokerDatas(new ArrayList<>(List.of(broker("broker-a", 10911), broker("broker-ü", 10921))));
        body("TopicRouteData", route);
        golden.raw("json_body/TopicRouteData.standard.body",
            route.encode(JSONWriter.Feature.BrowserCompatible, JSONWriter.Feature.MapSortField));

        ClusterInfo cluster = new ClusterInfo();
        Map<String, BrokerData> brokers = new TreeMap<>();
        brokers.put("broker-a", broker("broker-a", 10911));
        cluster.setBrokerAddrTable(brokers);
        cluster.setClusterAddrTable(new TreeMap<>(Map.of("DefaultCluster", new TreeSet<>(List.of("broker-a", "broker-b")))));
        body("ClusterInfo", cluster);
    }

    private static ConcurrentHashMap<String, TopicConfig> topics() {
        ConcurrentHashMap<String, TopicConfig> found = new ConcurrentHashMap<>();
        found.put("TopicTest", new TopicConfig("TopicTest", 8, 4, 6));
        TopicConfig delay = new TopicConfig("DelayTopic", 1, 1, 6);
        delay.setAttributes(new HashMap<>(Map.of("message.type", "DELAY")));
        delay.setOrder(true);
        found.put("DelayTopic", delay);
        return found;
    }

    private void registration() throws Exception {
        TopicConfigSerializeWrapper topics = new TopicConfigSerializeWrapper();
        topics.setTopicConfigTable(topics());
        topics.setDataVersion(version());
        body("TopicConfigSerializeWrapper", topics);

        TopicConfigAndMappingSerializeWrapper mapped = new TopicConfigAndMappingSerializeWrapper();
        mapped.setTopicConfigTable(topics());
        mapped.setDataVersion(version());
        mapped.setMappingDataVersion(version());
        RegisterBrokerBody register = new RegisterBrokerBody();
        register.setTopicConfigSerializeWrapper(mapped);
        register.setFilterServerList(new ArrayList<>(List.of("10.0.0.9:1000")));
        golden.raw("json_body/RegisterBrokerBody.body", register.encode(false));
        golden.raw("json_body/RegisterBrokerBody.compressed.body", register.encode(true));
        golden.json("json_body/TopicConfig.encode.json", Golden.of("TopicTest", topics().get("TopicTest").encode(),
            "DelayTopic", topics().get("DelayTopic").encode()));
    }

    private void groups() throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName("cg");
        SubscriptionGroupWrapper groups = new SubscriptionGroupWrapper();
        groups.setSubscriptionGroupTable(new ConcurrentHashMap<>(Map.of("cg", config)));
        groups.setDataVersion(version());
        body("SubscriptionGroupWrapper", groups);

        HeartbeatData heartbeat = new HeartbeatData();
        heartbeat.setClientID("10.0.0.1@1234");
        ProducerData producer = new ProducerData();
        producer.setGroupName("pg");
        heartbeat.getProducerDataSet().add(producer);
        ConsumerData consumer = new ConsumerData();
        consumer.setGroupName("cg");
        consumer.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        SubscriptionData subscription = FilterAPI.buildSubscriptionData("TopicTest", "TagA || TagB");
        subscription.setSubVersion(1700000000000L);
        consumer.getSubscriptionDataSet().add(subscription);
        heartbeat.getConsumerDataSet().add(consumer);
        body("HeartbeatData", heartbeat);
        golden.json("json_body/HeartbeatData.fingerprint.json", Golden.of("fingerprint", heartbeat.computeHeartbeatFingerprint()));

        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setConsumerGroup("cg");
        lock.setClientId("10.0.0.1@1234");
        lock.getMqSet().add(new MessageQueue("TopicTest", "broker-a", 0));
        body("LockBatchRequestBody", lock);
    }

    private void stats() throws Exception {
        ConsumerOffsetSerializeWrapper offsets = new ConsumerOffsetSerializeWrapper();
        offsets.setOffsetTable(new ConcurrentHashMap<>(Map.of("TopicTest@cg", new ConcurrentHashMap<>(Map.of(0, 12L, 3, 7L)))));
        offsets.setDataVersion(version());
        body("ConsumerOffsetSerializeWrapper", offsets);

        MessageQueue first = new MessageQueue("TopicTest", "broker-a", 0);
        MessageQueue second = new MessageQueue("TopicTest", "broker-a", 1);
        ConsumeStats stats = new ConsumeStats();
        stats.setConsumeTps(1.5);
        Map<MessageQueue, OffsetWrapper> wrappers = new TreeMap<>();
        for (MessageQueue queue : List.of(first, second)) {
            OffsetWrapper wrapper = new OffsetWrapper();
            wrapper.setBrokerOffset(12);
            wrapper.setConsumerOffset(10);
            wrapper.setPullOffset(11);
            wrapper.setLastTimestamp(1700000000000L);
            wrappers.put(queue, wrapper);
        }
        stats.setOffsetTable(wrappers);
        body("ConsumeStats", stats);

        TopicStatsTable table = new TopicStatsTable();
        Map<MessageQueue, TopicOffset> ends = new TreeMap<>();
        TopicOffset end = new TopicOffset();
        end.setMaxOffset(12);
        end.setLastUpdateTimestamp(1700000000000L);
        ends.put(first, end);
        table.setOffsetTable(ends);
        body("TopicStatsTable", table);

        ResetOffsetBody reset = new ResetOffsetBody();
        reset.setOffsetTable(new TreeMap<>(Map.of(first, 3L)));
        body("ResetOffsetBody", reset);
    }

    /** Every body class with a plain constructor, as it is when nothing was set. */
    private void defaults() throws Exception {
        Path jar = Path.of(new URI(CommandCustomHeader.class.getProtectionDomain().getCodeSource().getLocation().toString()));
        TreeSet<String> names = new TreeSet<>();
        try (ZipFile zip = new ZipFile(jar.toFile())) {
            for (ZipEntry entry : java.util.Collections.list(zip.entries())) {
                if (entry.getName().matches(".*/protocol/(body|route|heartbeat|subscription|admin|statictopic)/.*\\.class")) {
                    names.add(entry.getName().replace('/', '.').replaceAll("\\.class$", ""));
                }
            }
        }
        Map<String, Object> found = new LinkedHashMap<>();
        for (String name : names) {
            Class<?> type = Class.forName(name);
            if (!Modifier.isPublic(type.getModifiers()) || Modifier.isAbstract(type.getModifiers()) || type.isEnum()) {
                continue;
            }
            try {
                Object body = type.getDeclaredConstructor().newInstance();
                String text = RemotingSerializable.toJson(body, false);
                found.put(type.getSimpleName(), text.replaceAll("1[6-9]\\d{11}", "1700000000000"));
            } catch (NoSuchMethodException | IllegalAccessException error) {
                continue; // built another way: not a body of its own
            }
        }
        golden.json("json_body/defaults.json", found);
    }

    private void allocation() throws Exception {
        List<Object> cases = new ArrayList<>();
        List<AllocateMessageQueueStrategy> strategies = List.of(new AllocateMessageQueueAveragely(),
            new AllocateMessageQueueAveragelyByCircle(), new AllocateMessageQueueConsistentHash());
        for (int[] shape : new int[][] {{1, 1}, {5, 2}, {2, 3}, {8, 3}, {16, 5}, {7, 7}, {4, 4}, {12, 1}, {3, 8}}) {
            List<MessageQueue> queues = new ArrayList<>();
            for (int i = 0; i < shape[0]; i++) {
                queues.add(new MessageQueue("TopicTest", i % 2 == 0 ? "broker-a" : "broker-b", i / 2));
            }
            java.util.Collections.sort(queues);
            List<String> clients = new ArrayList<>();
            for (int i = 0; i < shape[1]; i++) {
                clients.add("10.0.0." + (i + 1) + "@" + (1000 + i));
            }
            for (AllocateMessageQueueStrategy strategy : strategies) {
                Map<String, Object> results = new LinkedHashMap<>();
                for (String client : clients) {
                    List<String> mine = new ArrayList<>();
                    for (MessageQueue queue : strategy.allocate("cg", client, queues, clients)) {
                        mine.add(queue.getBrokerName() + ":" + queue.getQueueId());
                    }
                    results.put(client, mine);
                }
                cases.add(Golden.of("strategy", strategy.getName(), "queues", Arrays.asList(queues.stream().map(
                    queue -> queue.getBrokerName() + ":" + queue.getQueueId()).toArray()), "clients", clients, "results", results));
            }
        }
        golden.json("allocation/cases.json", cases);
        machineRooms();
    }

    /** The strategies that know rooms: brokers are named room@..., a client's room is the last word of its id. */
    private void machineRooms() throws Exception {
        AllocateMessageQueueByMachineRoom some = new AllocateMessageQueueByMachineRoom();
        some.setConsumeridcs(Set.of("east", "west"));
        AllocateMachineRoomNearby.MachineRoomResolver rooms = new AllocateMachineRoomNearby.MachineRoomResolver() {
            @Override
            public String brokerDeployIn(MessageQueue queue) {
                return queue.getBrokerName().split("@")[0];
            }

            @Override
            public String consumerDeployIn(String clientId) {
                return clientId.substring(clientId.lastIndexOf('-') + 1);
            }
        };
        Map<String, AllocateMessageQueueStrategy> strategies = new LinkedHashMap<>();
        strategies.put("MACHINE_ROOM", some);
        strategies.put("NEARBY AVG", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), rooms));
        strategies.put("NEARBY CIRCLE", new AllocateMachineRoomNearby(new AllocateMessageQueueAveragelyByCircle(), rooms));
        List<MessageQueue> queues = new ArrayList<>();
        for (String broker : new String[] {"east@a", "east@b", "north@a", "west@a"}) {
            for (int i = 0; i < 3; i++) {
                queues.add(new MessageQueue("TopicTest", broker, i));
            }
        }
        List<Object> cases = new ArrayList<>();
        for (String text : new String[] {"1-east", "1-east 2-east 3-west", "1-north 2-south", "1-east 2-north 3-south 4-west 5-west"}) {
            List<String> clients = Arrays.asList(text.split(" "));
            for (Map.Entry<String, AllocateMessageQueueStrategy> strategy : strategies.entrySet()) {
                Map<String, Object> results = new LinkedHashMap<>();
                for (String client : clients) {
                    List<String> mine = new ArrayList<>();
                    for (MessageQueue queue : strategy.getValue().allocate("cg", client, queues, clients)) {
                        mine.add(queue.getBrokerName() + ":" + queue.getQueueId());
                    }
                    results.put(client, mine);
                }
                cases.add(Golden.of("strategy", strategy.getKey(), "clients", clients, "results", results));
            }
        }
        golden.json("allocation/machine_rooms.json", cases);
    }
}
