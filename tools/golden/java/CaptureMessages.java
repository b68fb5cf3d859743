import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.Validators;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.constant.PermName;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageVersion;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.store.MessageExtEncoder;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Records, batches, property strings, ids, hashes, names: what the message room encodes. */
final class CaptureMessages {
    private static final InetSocketAddress BORN = new InetSocketAddress("127.0.0.1", 50000);
    private static final InetSocketAddress STORE = new InetSocketAddress("127.0.0.1", 10911);
    private static final InetSocketAddress BORN_V6 = new InetSocketAddress("2001:db8:0:1::7", 50001);
    private static final InetSocketAddress STORE_V6 = new InetSocketAddress("2001:db8:0:1::1", 10911);
    private static final String TEXT = "Roquette keeps its promises; Roquette keeps its promises; Roquette keeps them.";

    private final Golden golden;
    private final List<Object> records = new ArrayList<>();

    CaptureMessages(Golden golden) {
        this.golden = golden;
    }

    void run() throws Exception {
        records();
        batches();
        properties();
        ids();
        hashes();
        names();
        compression();
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private void records() throws Exception {
        record("plain", message("TopicTest", utf8("Hello"), ""));
        record("tags_and_keys", message("TopicTest", utf8("Hello"), "TAGS\1TagA\2KEYS\1k1 k2\2UNIQ_KEY\1" + "7F000001000018B4AAC2000000000000" + "\2WAIT\1true\2"));
        record("unicode", message("TopicTest", utf8("你好, wörld 😀"), "TAGS\1标签\2KEYS\1ключ\2own\1😀\2"));
        record("empty_properties_negative_flag", negative());
        record("prepared_transaction", prepared());
        MessageExtBrokerInner born6 = message("TopicTest", utf8("six"), "TAGS\1a\2");
        born6.setBornHost(BORN_V6);
        born6.setBornHostV6Flag();
        record("born_host_v6", born6);
        MessageExtBrokerInner both6 = message("TopicTest", utf8("six"), "TAGS\1a\2");
        both6.setBornHost(BORN_V6);
        both6.setBornHostV6Flag();
        both6.setStoreHost(STORE_V6);
        both6.setStoreHostAddressV6Flag();
        record("both_hosts_v6", both6);
        record("topic_of_127_bytes", message("t".repeat(127), utf8("Hello"), "TAGS\1TagA\2"));
        record("topic_of_128_bytes_is_v2", message("%RETRY%" + "g".repeat(121), utf8("Hello"), "TAGS\1TagA\2"));
        record("topic_of_255_bytes_is_v2", message("%DLQ%" + "g".repeat(250), utf8("Hello"), "TAGS\1TagA\2"));
        for (CompressionType type : new CompressionType[] {CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD}) {
            byte[] body = CompressorFactory.getCompressor(type).compress(utf8(TEXT), 5);
            MessageExtBrokerInner packed = message("TopicTest", body, "TAGS\1TagA\2");
            packed.setSysFlag(1 | type.getCompressionFlag());
            record("compressed_" + type.name().toLowerCase(), packed);
        }
        golden.json("stored_record/cases.json", records);
    }

    private static MessageExtBrokerInner message(String topic, byte[] body, String properties) {
        MessageExtBrokerInner found = new MessageExtBrokerInner();
        found.setTopic(topic);
        found.setBody(body);
        found.setPropertiesString(properties);
        MessageAccessor.setProperties(found, MessageDecoder.string2messageProperties(properties));
        found.setQueueId(3);
        found.setQueueOffset(12);
        found.setCommitLogOffset(4096);
        found.setBornTimestamp(1700000000000L);
        found.setBornHost(BORN);
        found.setStoreTimestamp(1700000000100L);
        found.setStoreHost(STORE);
        found.setBodyCRC(UtilAll.crc32(body));
        return found;
    }

    private static MessageExtBrokerInner negative() {
        MessageExtBrokerInner found = message("T", new byte[] {0, 1, 2, (byte) 0xff}, "");
        found.setFlag(-7);
        found.setQueueOffset(Long.MAX_VALUE);
        found.setCommitLogOffset(1L << 40);
        found.setReconsumeTimes(5);
        return found;
    }

    private static MessageExtBrokerInner prepared() {
        MessageExtBrokerInner found = message("RMQ_SYS_TRANS_HALF_TOPIC", utf8("half"), "TRAN_MSG\1true\2PGROUP\1pg\2REAL_TOPIC\1T\2REAL_QID\1" + "2\2");
        found.setSysFlag(4);
        found.setPreparedTransactionOffset(987654321L);
        found.setQueueOffset(0);
        return found;
    }

    /** Encoded as the broker's commit log does it, and read back as Apache's client does. */
    private void record(String name, MessageExtBrokerInner message) throws Exception {
        if (utf8(message.getTopic()).length > 127) {
            message.setVersion(MessageVersion.MESSAGE_VERSION_V2);
        }
        MessageExtEncoder encoder = new MessageExtEncoder(new MessageStoreConfig());
        Object refused = encoder.encode(message);
        if (refused != null) {
            throw new IllegalStateException(name + " was refused: " + refused);
        }
        ByteBuffer buffer = encoder.getEncoderBuffer();
        byte[] data = new byte[buffer.getInt(0)]; // the buffer is larger than the record
        buffer.get(data);
        ByteBuffer.wrap(data).putLong(28, message.getCommitLogOffset()); // CommitLog.doAppend fills it in
        MessageExt read = MessageDecoder.clientDecode(ByteBuffer.wrap(data), true);
        records.add(Golden.of(
            "name", name, "topic", message.getTopic(), "queueId", message.getQueueId(), "flag", message.getFlag(),
            "queueOffset", message.getQueueOffset(), "physicalOffset", message.getCommitLogOffset(),
            "sysFlag", message.getSysFlag(), "bornTimestamp", message.getBornTimestamp(),
            "bornHost", message.getBornHostString(), "bornPort", ((InetSocketAddress) message.getBornHost()).getPort(),
            "storeTimestamp", message.getStoreTimestamp(),
            "storeHost", ((InetSocketAddress) message.getStoreHost()).getAddress().getHostAddress(),
            "storePort", ((InetSocketAddress) message.getStoreHost()).getPort(),
            "reconsumeTimes", message.getReconsumeTimes(), "preparedTransactionOffset", message.getPreparedTransactionOffset(),
            "body", Golden.hex(message.getBody()), "properties", message.getPropertiesString(),
            "readMsgId", read.getMsgId(), "readBody", Golden.hex(read.getBody()), "readSysFlag", read.getSysFlag(),
            "readBodyCRC", read.getBodyCRC(), "readStoreSize", read.getStoreSize(),
            "readProperties", new TreeMap<>(read.getProperties() == null ? Map.of() : read.getProperties()),
            "record", Golden.hex(data)));
    }

    private void batches() throws Exception {
        List<Message> messages = new ArrayList<>();
        messages.add(new Message("TopicTest", "TagA", "k1", utf8("one")));
        messages.add(new Message("TopicTest", utf8("二")));
        Message third = new Message("TopicTest", "TagB", "k3 k4", -3, new byte[0], false);
        third.putUserProperty("own", "värde");
        messages.add(third);
        List<Object> inputs = new ArrayList<>();
        for (Message message : messages) {
            inputs.add(Golden.of("flag", message.getFlag(), "body", Golden.hex(message.getBody()),
                "properties", MessageDecoder.messageProperties2String(message.getProperties())));
        }
        golden.json("batch_body/cases.json", List.of(
            Golden.of("name", "three", "messages", inputs, "batch", Golden.hex(MessageDecoder.encodeMessages(messages)))));
    }

    private void properties() throws Exception {
        List<Object> read = new ArrayList<>();
        for (String text : new String[] {"", "a\1b\2", "a\1b", "\1b\2a\1\2c\2d\1e\2", "a\1b\1c\2", "a\1b\2a\1c\2", "\2\2a\1b\2\2", "a\1\1\2", "\1\2", "a\2b\1c", "k\1ü😀\2"}) {
            read.add(Golden.of("text", text, "properties", new TreeMap<>(MessageDecoder.string2messageProperties(text))));
        }
        List<Object> written = new ArrayList<>();
        Map<String, String> map = new LinkedHashMap<>();
        map.put("TAGS", "TagA");
        map.put("KEYS", "k1 k2");
        map.put("empty", "");
        map.put("ü", "😀");
        written.add(Golden.of("properties", map, "text", MessageDecoder.messageProperties2String(map)));
        golden.json("property_string/cases.json", Golden.of("read", read, "written", written,
            "reserved", new ArrayList<>(new java.util.TreeSet<>(MessageConst.STRING_HASH_SET))));
    }

    private void ids() throws Exception {
        List<Object> offsetIds = new ArrayList<>();
        for (InetSocketAddress host : new InetSocketAddress[] {STORE, new InetSocketAddress("10.200.3.255", 65535), STORE_V6}) {
            for (long offset : new long[] {0, 4096, 1L << 40, Long.MAX_VALUE}) {
                String id = MessageDecoder.createMessageId(host, offset);
                offsetIds.add(Golden.of("host", host.getAddress().getHostAddress(), "port", host.getPort(), "offset", offset,
                    "id", id, "readOffset", MessageDecoder.decodeMessageId(id).getOffset()));
            }
        }
        String unique = "0A00000123451" + "8B4AAC2000012340007";
        golden.json("message_id/cases.json", Golden.of("offsetIds", offsetIds, "uniqueId", unique,
            "uniqueIdIp", MessageClientIDSetter.getIPStrFromID(unique), "uniqueIdPid", MessageClientIDSetter.getPidFromID(unique)));
    }

    private void hashes() throws Exception {
        List<Object> cases = new ArrayList<>();
        for (String text : Arrays.asList("", "a", "TagA", "TagB", "*", "TopicTest#key1", "你好", "a".repeat(20), "😀", "x😀y\uFFFF", "Ünï", "polygenelubricants", "\0\0a")) {
            cases.add(Golden.of("text", text, "hash", text.hashCode(), "tagsCode", MessageExtBrokerInner.tagsString2tagsCode(text)));
        }
        golden.json("string_hash/cases.json", cases);
    }

    private void names() throws Exception {
        List<Object> cases = new ArrayList<>();
        for (String name : Arrays.asList("TopicTest", "", " ", "\t", "..", "a/b", "../x", "a.b", "a b", "a+b", "ü", "%RETRY%g", "%DLQ%g", "t".repeat(127), "t".repeat(128),
                "g".repeat(120), "g".repeat(121), "%RETRY%" + "g".repeat(248), "%RETRY%" + "g".repeat(249), "%DLQ%" + "g".repeat(251), "a|b-c_d%9",
                "TBW102", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC")) {
            cases.add(Golden.of("name", name,
                "topic", TopicValidator.validateTopic(name).getRemark(), "group", TopicValidator.validateGroup(name).getRemark(),
                "clientTopic", refusal(() -> Validators.checkTopic(name)), "clientGroup", refusal(() -> Validators.checkGroup(name)),
                "system", TopicValidator.isSystemTopic(name), "notAllowedSend", TopicValidator.isNotAllowedSendTopic(name)));
        }
        List<Object> perms = new ArrayList<>();
        for (int perm = -1; perm < 17; perm++) {
            perms.add(Golden.of("perm", perm, "text", PermName.perm2String(perm), "valid", PermName.isValid(perm)));
        }
        golden.json("names/cases.json", Golden.of("names", cases, "perms", perms,
            "systemTopics", new java.util.TreeSet<>(TopicValidator.getSystemTopicSet()),
            "notAllowedSend", new java.util.TreeSet<>(TopicValidator.getNotAllowedSendTopicSet())));
    }

    interface Check {
        void run() throws MQClientException;
    }

    private static String refusal(Check check) {
        try {
            check.run();
            return null;
        } catch (MQClientException error) {
            return error.getErrorMessage() == null ? error.getMessage() : error.getErrorMessage();
        }
    }

    private void compression() throws Exception {
        List<Object> cases = new ArrayList<>();
        for (CompressionType type : new CompressionType[] {CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD}) {
            for (String text : new String[] {"", "a", TEXT, TEXT.repeat(60)}) {
                cases.add(Golden.of("type", type.name(), "flag", type.getCompressionFlag(), "text", text,
                    "packed", Golden.hex(CompressorFactory.getCompressor(type).compress(utf8(text), 5))));
            }
        }
        golden.json("compression/cases.json", cases);
    }
}
