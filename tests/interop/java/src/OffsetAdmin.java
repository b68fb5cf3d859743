import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.message.MessageQueue;

/** Offset administration through the client's own calls: reset, clone, status. */
final class OffsetAdmin {
    private static final long TIMEOUT_MS = 15000;
    private final Producers producers;

    OffsetAdmin(Producers producers) {
        this.producers = producers;
    }

    Object run(String command, Driver.Arguments arguments) throws Exception {
        if (!List.of("resetOffset", "cloneOffset", "consumerStatus").contains(command)) {
            return null;
        }
        MQClientAPIImpl api = producers.find(arguments.text("name"))
                .getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        String address = arguments.text("address");
        String topic = arguments.text("topic");
        String group = arguments.text("group");
        Map<String, Object> answer = new LinkedHashMap<>();
        switch (command) {
            case "resetOffset":
                answer.put("queues", byQueue(api.invokeBrokerToResetOffset(
                        address, topic, group, arguments.big("at", 0), true, TIMEOUT_MS)));
                return answer;
            case "cloneOffset":
                api.cloneGroupOffset(address, group, arguments.text("target"), topic, false, TIMEOUT_MS);
                return answer;
            default:
                api.invokeBrokerToGetConsumerStatus(address, topic, group, null, TIMEOUT_MS)
                        .forEach((client, queues) -> answer.put(client, byQueue(queues)));
                return answer;
        }
    }

    private static Map<String, Object> byQueue(Map<MessageQueue, Long> offsets) {
        Map<String, Object> shape = new LinkedHashMap<>();
        List<MessageQueue> queues = new ArrayList<>(offsets.keySet());
        queues.sort(null);
        for (MessageQueue queue : queues) {
            shape.put(queue.getBrokerName() + "@" + queue.getQueueId(), offsets.get(queue));
        }
        return shape;
    }
}
