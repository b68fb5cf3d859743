import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What the driver tells about Apache's objects. */
final class Shapes {
    private static final int SHOWN_BODY = 2000;

    private Shapes() {
    }

    static Map<String, Object> sent(SendResult result) {
        Map<String, Object> shape = new LinkedHashMap<>();
        shape.put("status", result.getSendStatus().name());
        shape.put("msgId", result.getMsgId());
        shape.put("offsetMsgId", result.getOffsetMsgId());
        shape.put("queueId", result.getMessageQueue().getQueueId());
        shape.put("brokerName", result.getMessageQueue().getBrokerName());
        shape.put("queueOffset", result.getQueueOffset());
        shape.put("regionId", result.getRegionId());
        shape.put("traceOn", result.isTraceOn());
        return shape;
    }

    static Map<String, Object> message(MessageExt message) throws Exception {
        byte[] body = message.getBody();
        Map<String, Object> shape = new LinkedHashMap<>();
        shape.put("topic", message.getTopic());
        shape.put("queueId", message.getQueueId());
        shape.put("queueOffset", message.getQueueOffset());
        shape.put("brokerName", message.getBrokerName());
        shape.put("msgId", message.getMsgId());
        shape.put("commitLogOffset", message.getCommitLogOffset());
        shape.put("reconsumeTimes", message.getReconsumeTimes());
        shape.put("bornTimestamp", message.getBornTimestamp());
        shape.put("storeTimestamp", message.getStoreTimestamp());
        shape.put("bornHost", message.getBornHostString());
        shape.put("storeHost", String.valueOf(message.getStoreHost()));
        shape.put("sysFlag", message.getSysFlag());
        shape.put("flag", message.getFlag());
        shape.put("bodyCRC", message.getBodyCRC());
        shape.put("storeSize", message.getStoreSize());
        shape.put("tags", message.getTags());
        shape.put("keys", message.getKeys());
        shape.put("properties", new TreeMap<>(message.getProperties()));
        shape.put("size", body.length);
        shape.put("hash", hash(body));
        shape.put("body", body.length > SHOWN_BODY ? "" : new String(body, StandardCharsets.UTF_8));
        return shape;
    }

    static List<Object> messages(Collection<MessageExt> found) throws Exception {
        List<Object> shapes = new ArrayList<>();
        for (MessageExt message : found) {
            shapes.add(message(message));
        }
        return shapes;
    }

    static List<Object> queues(Collection<MessageQueue> found) {
        List<Object> shapes = new ArrayList<>();
        for (MessageQueue queue : new java.util.TreeSet<>(found)) {
            shapes.add(queue.getTopic() + "@" + queue.getBrokerName() + "@" + queue.getQueueId());
        }
        return shapes;
    }

    static String hash(byte[] body) throws Exception {
        StringBuilder text = new StringBuilder();
        for (byte b : MessageDigest.getInstance("MD5").digest(body)) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }
}
