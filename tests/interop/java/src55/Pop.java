import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.NotificationRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PeekMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PollingInfoRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** The commands of POP, which clients have since 5.0: pop, popAck, popConsumer, receipt, ... */
final class Pop {
    private static final long TIMEOUT_MS = 30_000;
    private static final Map<String, DefaultMQPushConsumer> CONSUMERS = new HashMap<>();
    private static final Map<String, List<Object>> SEEN = new HashMap<>();
    private static final Map<String, DefaultMQProducer> CLIENTS = new HashMap<>();

    private Pop() {
    }

    static Object run(String command, Driver.Arguments arguments) throws Exception {
        switch (command) {
            case "pop":
                return pop(arguments);
            case "popAck":
                return ack(arguments);
            case "popBatchAck":
                return batchAck(arguments);
            case "popInvisible":
                return changeInvisibleTime(arguments);
            case "popAsk":
                return ask(arguments);
            case "popConsumer":
                return start(arguments);
            case "popSeen":
                return seen(arguments);
            case "popStop":
                CONSUMERS.remove(arguments.text("name")).shutdown();
                return Collections.singletonMap("stopped", true);
            case "receipt":
                return receipt(arguments);
            default:
                return null;
        }
    }

    private static MQClientAPIImpl api(Driver.Arguments arguments) throws Exception {
        String namesrv = arguments.text("namesrv");
        DefaultMQProducer client = CLIENTS.get(namesrv);
        if (client == null) {
            client = Doors.open(new DefaultMQProducer("PG_pop", Doors.hook(arguments)), arguments);
            client.setNamesrvAddr(namesrv);
            client.setInstanceName("pop-" + namesrv.hashCode());
            client.start();
            CLIENTS.put(namesrv, client);
        }
        return client.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
    }

    private static Object pop(Driver.Arguments arguments) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(arguments.text("group"));
        header.setTopic(arguments.text("topic"));
        header.setQueueId(arguments.number("queue", -1));
        header.setMaxMsgNums(arguments.number("max", 32));
        header.setInvisibleTime(arguments.big("invisible", 60_000));
        header.setPollTime(arguments.big("poll", 0));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(arguments.number("init", 0));
        header.setExpType(arguments.text("type", "TAG"));
        header.setExp(arguments.text("expression", "*"));
        header.setOrder(arguments.has("order"));
        if (arguments.has("attempt")) {
            header.setAttemptId(arguments.text("attempt"));
        }
        CompletableFuture<PopResult> done = new CompletableFuture<>();
        api(arguments).popMessageAsync(arguments.text("broker"), arguments.text("address"), header, TIMEOUT_MS,
                new PopCallback() {
                    @Override
                    public void onSuccess(PopResult result) {
                        done.complete(result);
                    }

                    @Override
                    public void onException(Throwable failure) {
                        done.completeExceptionally(failure);
                    }
                });
        PopResult result = outcome(done);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("status", result.getPopStatus().name());
        answer.put("rest", result.getRestNum());
        answer.put("messages", result.getMsgFoundList() == null
                ? new ArrayList<>() : Shapes.messages(result.getMsgFoundList()));
        return answer;
    }

    private static <T> T outcome(CompletableFuture<T> done) throws Exception {
        try {
            return done.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        } catch (java.util.concurrent.ExecutionException failure) {
            throw failure.getCause() instanceof Exception ? (Exception) failure.getCause() : failure;
        }
    }

    private static final class Acked extends CompletableFuture<AckResult> implements AckCallback {
        @Override
        public void onSuccess(AckResult result) {
            complete(result);
        }

        @Override
        public void onException(Throwable failure) {
            completeExceptionally(failure);
        }

        Object shape() throws Exception {
            AckResult result = outcome(this);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("status", result.getStatus().name());
            answer.put("extraInfo", String.valueOf(result.getExtraInfo()));
            answer.put("popTime", result.getPopTime());
            return answer;
        }
    }

    private static Object ack(Driver.Arguments arguments) throws Exception {
        String receipt = arguments.text("receipt");
        String[] parts = ExtraInfoUtil.split(receipt);
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, arguments.text("topic"), arguments.text("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(arguments.big("offset", ExtraInfoUtil.getQueueOffset(parts)));
        header.setConsumerGroup(arguments.text("group"));
        header.setExtraInfo(receipt);
        Acked done = new Acked();
        api(arguments).ackMessageAsync(arguments.text("address"), TIMEOUT_MS, done, header);
        return done.shape();
    }

    private static Object batchAck(Driver.Arguments arguments) throws Exception {
        Acked done = new Acked();
        api(arguments).batchAckMessageAsync(arguments.text("address"), TIMEOUT_MS, done, arguments.text("topic"),
                arguments.text("group"), new ArrayList<>(arguments.below("receipt.").values()));
        return done.shape();
    }

    private static Object changeInvisibleTime(Driver.Arguments arguments) throws Exception {
        String receipt = arguments.text("receipt");
        String[] parts = ExtraInfoUtil.split(receipt);
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setTopic(ExtraInfoUtil.getRealTopic(parts, arguments.text("topic"), arguments.text("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(parts));
        header.setOffset(ExtraInfoUtil.getQueueOffset(parts));
        header.setConsumerGroup(arguments.text("group"));
        header.setExtraInfo(receipt);
        header.setInvisibleTime(arguments.big("invisible", 1000));
        Acked done = new Acked();
        api(arguments).changeInvisibleTimeAsync(arguments.text("broker"), arguments.text("address"), header,
                TIMEOUT_MS, done);
        return done.shape();
    }

    /** peek, notification and polling info: no method of the client sends them plainly. */
    private static Object ask(Driver.Arguments arguments) throws Exception {
        int code = arguments.number("code", 0);
        CommandCustomHeader header;
        if (code == RequestCode.PEEK_MESSAGE) {
            PeekMessageRequestHeader peek = new PeekMessageRequestHeader();
            peek.setConsumerGroup(arguments.text("group"));
            peek.setTopic(arguments.text("topic"));
            peek.setQueueId(arguments.number("queue", -1));
            peek.setMaxMsgNums(arguments.number("max", 32));
            header = peek;
        } else if (code == RequestCode.NOTIFICATION) {
            NotificationRequestHeader notification = new NotificationRequestHeader();
            notification.setConsumerGroup(arguments.text("group"));
            notification.setTopic(arguments.text("topic"));
            notification.setQueueId(arguments.number("queue", -1));
            notification.setPollTime(arguments.big("poll", 0));
            notification.setBornTime(System.currentTimeMillis());
            header = notification;
        } else {
            PollingInfoRequestHeader polling = new PollingInfoRequestHeader();
            polling.setConsumerGroup(arguments.text("group"));
            polling.setTopic(arguments.text("topic"));
            polling.setQueueId(arguments.number("queue", -1));
            header = polling;
        }
        RemotingCommand reply = api(arguments).getRemotingClient().invokeSync(arguments.text("address"),
                RemotingCommand.createRequestCommand(code, header), TIMEOUT_MS);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("code", reply.getCode());
        answer.put("remark", reply.getRemark());
        answer.put("ext", reply.getExtFields());
        answer.put("size", reply.getBody() == null ? 0 : reply.getBody().length);
        return answer;
    }

    private static Object start(Driver.Arguments arguments) throws Exception {
        String name = arguments.text("name");
        DefaultMQPushConsumer consumer = Doors.push(arguments);
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName("pop-consumer-" + name);
        consumer.setPollNameServerInterval(1000);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(arguments.big("invisible", 60_000));
        if (arguments.has("sql")) {
            consumer.subscribe(arguments.text("topic"), MessageSelector.bySql(arguments.text("sql")));
        } else {
            consumer.subscribe(arguments.text("topic"), arguments.text("expression", "*"));
        }
        List<Object> seen = Collections.synchronizedList(new ArrayList<>());
        int failUntil = arguments.number("failUntil", 0);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean fine = true;
            for (MessageExt message : messages) {
                try {
                    seen.add(Shapes.message(message));
                } catch (Exception failure) {
                    seen.add(Driver.failed(failure));
                }
                fine &= message.getReconsumeTimes() >= failUntil;
            }
            return fine ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        CONSUMERS.put(name, consumer);
        SEEN.put(name, seen);
        return Collections.singletonMap("clientId", consumer.buildMQClientId());
    }

    private static Object seen(Driver.Arguments arguments) throws Exception {
        List<Object> seen = SEEN.get(arguments.text("name"));
        long end = System.currentTimeMillis() + arguments.number("timeout", 0);
        while (seen.size() < arguments.number("min", 0) && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
        synchronized (seen) {
            return Collections.singletonMap("messages", new ArrayList<>(seen));
        }
    }

    /** What ExtraInfoUtil makes of one set of values. */
    private static Object receipt(Driver.Arguments arguments) {
        String topic = arguments.text("topic");
        int queue = arguments.number("queue", 0);
        long start = arguments.big("start", 0);
        long offset = arguments.big("offset", 0);
        String text = ExtraInfoUtil.buildExtraInfo(start, arguments.big("pop", 0), arguments.big("invisible", 0),
                arguments.number("revive", 0), topic, arguments.text("broker"), queue, offset);
        StringBuilder starts = new StringBuilder();
        ExtraInfoUtil.buildStartOffsetInfo(starts, topic, queue, start);
        StringBuilder offsets = new StringBuilder();
        ExtraInfoUtil.buildMsgOffsetInfo(offsets, topic, queue, Arrays.asList(start, offset));
        StringBuilder counts = new StringBuilder();
        ExtraInfoUtil.buildQueueOffsetOrderCountInfo(counts, topic, queue, offset, arguments.number("count", 0));
        ExtraInfoUtil.buildQueueIdOrderCountInfo(counts, topic, queue, arguments.number("count", 0));
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("receipt", text);
        answer.put("starts", starts.toString());
        answer.put("offsets", offsets.toString());
        answer.put("counts", counts.toString());
        return answer;
    }
}
