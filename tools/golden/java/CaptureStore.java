import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.PutMessageResult;
import org.apache.rocketmq.store.StoreCheckpoint;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.index.IndexFile;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** An index file, a checkpoint, and a whole small store written by Apache's DefaultMessageStore. */
final class CaptureStore {
    private static final int SLOTS = 17;
    private static final int ENTRIES = 40;
    private static final long START = 1700000000000L;

    private final Golden golden;
    private final Path scratch;

    CaptureStore(Golden golden, Path scratch) {
        this.golden = golden;
        this.scratch = scratch;
    }

    void run() throws Exception {
        index();
        checkpoint();
        store();
    }

    private void index() throws Exception {
        Path path = scratch.resolve("20231114221320000");
        IndexFile file = new IndexFile(path.toString(), SLOTS, ENTRIES, 0, 0);
        List<Object> puts = new ArrayList<>();
        String[] keys = {"TopicTest#key1", "TopicTest#key2", "TopicTest#ключ", "Other#key1", "TopicTest#key1", "TopicTest#polygenelubricants", "TopicTest#😀"};
        for (int i = 0; i < 21; i++) {
            String key = keys[i % keys.length] + (i < 14 ? "" : "-" + i);
            long offset = 1000L + i * 200L;
            long stored = START + i * 1500L;
            puts.add(Golden.of("key", key, "physicalOffset", offset, "storeTimestamp", stored,
                "hash", file.indexKeyHashMethod(key), "put", file.putKey(key, offset, stored)));
        }
        file.flush();
        List<Object> lookups = new ArrayList<>();
        for (String key : new String[] {"TopicTest#key1", "Other#key1", "TopicTest#none", "TopicTest#😀"}) {
            List<Long> found = new ArrayList<>();
            file.selectPhyOffset(found, key, 32, START, START + 60_000);
            lookups.add(Golden.of("key", key, "begin", START, "end", START + 60_000, "offsets", found));
        }
        golden.json("index_file/cases.json", Golden.of("slots", SLOTS, "entries", ENTRIES, "puts", puts, "lookups", lookups));
        golden.raw("index_file/index.bin", Files.readAllBytes(path));
    }

    private void checkpoint() throws Exception {
        Path path = scratch.resolve("checkpoint-alone");
        StoreCheckpoint checkpoint = new StoreCheckpoint(path.toString());
        checkpoint.setPhysicMsgTimestamp(START + 1);
        checkpoint.setLogicsMsgTimestamp(START + 2);
        checkpoint.setIndexMsgTimestamp(START + 3);
        checkpoint.setMasterFlushedOffset(4096);
        checkpoint.setConfirmPhyOffset(8192);
        checkpoint.setLogicsPhysicalOffset(12288);
        checkpoint.flush();
        byte[] data = Files.readAllBytes(path);
        golden.json("checkpoint/cases.json", Golden.of("size", data.length, "physicMsgTimestamp", START + 1,
            "logicsMsgTimestamp", START + 2, "indexMsgTimestamp", START + 3, "masterFlushedOffset", 4096, "confirmPhyOffset", 8192,
            "logicsPhysicalOffset", 12288, "head", Golden.hex(java.util.Arrays.copyOf(data, 64))));
    }

    private void store() throws Exception {
        Path root = scratch.resolve("store");
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root.toString());
        config.setStorePathCommitLog(root.resolve("commitlog").toString());
        config.setMappedFileSizeCommitLog(4096);
        config.setMappedFileSizeConsumeQueue(20 * 16);
        config.setMaxHashSlotNum(SLOTS);
        config.setMaxIndexNum(200);
        config.setHaListenPort(0);
        config.setTimerWheelEnable(false);
        config.setDuplicationEnable(true); // keeps the store timestamps we set
        config.setTransientStorePoolEnable(false);
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("golden", false), null, new BrokerConfig(), new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        store.start();
        List<Object> puts = new ArrayList<>();
        Map<String, Long> nextOffsets = new TreeMap<>();
        for (int i = 0; i < 30; i++) {
            MessageExtBrokerInner message = message(i);
            // With duplicationEnable the store does not draw queue offsets either: do as its assigner does.
            if (message.getSysFlag() == 0 || message.getSysFlag() == 8) {
                message.setQueueOffset(nextOffsets.merge(message.getTopic() + "-" + message.getQueueId(), 1L, Long::sum) - 1);
            }
            PutMessageResult result = store.putMessage(message);
            puts.add(Golden.of("topic", message.getTopic(), "queueId", message.getQueueId(), "sysFlag", message.getSysFlag(),
                "properties", message.getPropertiesString(), "body", new String(message.getBody(), StandardCharsets.UTF_8),
                "bornTimestamp", message.getBornTimestamp(), "storeTimestamp", message.getStoreTimestamp(), "tagsCode", message.getTagsCode(),
                "status", result.getPutMessageStatus().name(), "physicalOffset", result.getAppendMessageResult().getWroteOffset(),
                "size", result.getAppendMessageResult().getWroteBytes(), "queueOffset", result.getAppendMessageResult().getLogicsOffset()));
        }
        store.setConfirmOffset(store.getMaxPhyOffset());
        for (int i = 0; i < 100 && store.dispatchBehindBytes() > 0; i++) {
            Thread.sleep(50);
        }
        Thread.sleep(1500);
        store.shutdown();
        Map<String, Object> files = new TreeMap<>();
        try (Stream<Path> paths = Files.walk(root)) {
            for (Path path : (Iterable<Path>) paths.filter(Files::isRegularFile).sorted()::iterator) {
                String name = root.relativize(path).toString().replaceAll("index/\\d{17}", "index/20231114221320000");
                byte[] data = Files.readAllBytes(path);
                files.put(name, data.length);
                if (name.matches("(commitlog|consumequeue|index)/.*|checkpoint")) {
                    golden.raw("store/files/" + name, data);
                }
            }
        }
        golden.json("store/cases.json", Golden.of("commitLogFileSize", 4096, "consumeQueueFileSize", 320, "hashSlots", SLOTS, "indexEntries", 200,
            "puts", puts, "files", files));
    }

    private static MessageExtBrokerInner message(int i) {
        MessageExtBrokerInner found = new MessageExtBrokerInner();
        String tag = i % 3 == 0 ? "TagA" : "标签B";
        found.setTopic(i % 5 == 4 ? "Other" : "TopicTest");
        found.setBody(("body of message " + i + " " + "x".repeat(i * 11)).getBytes(StandardCharsets.UTF_8));
        String properties = (i % 4 == 3 ? "" : "TAGS\1" + tag + "\2") + "KEYS\1key" + i + " all\2UNIQ_KEY\1" + String.format("7F000001000018B4AAC2%012X", i) + "\2";
        MessageAccessor.setProperties(found, MessageDecoder.string2messageProperties(properties));
        found.setPropertiesString(properties);
        found.setTagsCode(MessageExtBrokerInner.tagsString2tagsCode(found.getTags()));
        found.setQueueId(i % 2);
        found.setSysFlag(i == 7 ? 4 : i == 8 ? 8 : i == 9 ? 12 : 0);
        found.setBornTimestamp(START + i * 1000L);
        found.setStoreTimestamp(START + i * 1000L + 5);
        found.setBornHost(new InetSocketAddress("10.0.0.1", 50000));
        found.setStoreHost(new InetSocketAddress("127.0.0.1", 10911));
        found.setBodyCRC(UtilAll.crc32(found.getBody()));
        return found;
    }
}
