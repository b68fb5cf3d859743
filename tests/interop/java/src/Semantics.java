import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers and consumers with special settings (maker, reader, read), and a producer that goes on (stream, streamed). */
final class Semantics {
    /** Sends "name-0", "name-1", ... until it is stopped. */
    private static final class Stream extends Thread {
        final DefaultMQProducer producer;
        final String name;
        final String topic;
        final String mode;
        final int pause;
        final List<Object> sent = Collections.synchronizedList(new ArrayList<>());
        final List<Object> failed = Collections.synchronizedList(new ArrayList<>());
        final Semaphore open = new Semaphore(100);
        volatile boolean stopped;

        Stream(DefaultMQProducer producer, Driver.Arguments arguments) {
            this.producer = producer;
            this.name = arguments.text("name");
            this.topic = arguments.text("topic");
            this.mode = arguments.text("mode", "sync");
            this.pause = arguments.number("pause", 10);
        }

        @Override
        public void run() {
            for (int i = 0; !stopped; i++) {
                String body = name + "-" + i;
                Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
                try {
                    if (mode.equals("async")) {
                        async(message, body);
                    } else if (mode.equals("order")) { // message i to the queue of its number, among those there are
                        keep(body, producer.send(message, (queues, m, at) ->
                                queues.get((Integer) at % queues.size()), i));
                    } else {
                        keep(body, producer.send(message));
                    }
                    Thread.sleep(pause);
                } catch (Throwable failure) {
                    failed.add(body + ": " + failure);
                }
            }
            open.acquireUninterruptibly(100);
        }

        private void async(Message message, String body) throws Exception {
            open.acquire();
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    keep(body, result);
                    open.release();
                }

                @Override
                public void onException(Throwable failure) {
                    failed.add(body + ": " + failure);
                    open.release();
                }
            });
        }

        private void keep(String body, SendResult result) {
            if (!result.getSendStatus().name().equals("SEND_OK")) {
                failed.add(body + ": " + result);
            }
            sent.add(Arrays.asList(body, result.getMessageQueue().getBrokerName(),
                    result.getMessageQueue().getQueueId(), result.getQueueOffset(), System.currentTimeMillis()));
        }
    }

    /** What a consumer was given: one row per try. */
    private static final class Reader {
        final DefaultMQPushConsumer consumer;
        final List<Object> rows = Collections.synchronizedList(new ArrayList<>());
        final String failing;
        final int failUntil;
        final int workMs;

        Reader(DefaultMQPushConsumer consumer, Driver.Arguments arguments) {
            this.consumer = consumer;
            this.failing = arguments.text("failing", "");
            this.failUntil = arguments.number("failUntil", 0);
            this.workMs = arguments.number("workMs", 0);
        }

        boolean take(List<MessageExt> messages) {
            boolean fine = true;
            for (MessageExt message : messages) {
                long began = System.nanoTime();
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                if (workMs > 0) {
                    try {
                        Thread.sleep(workMs);
                    } catch (InterruptedException stop) {
                        return false;
                    }
                }
                boolean works = message.getReconsumeTimes() >= failUntil || !body.startsWith(failing);
                fine &= works;
                Map<String, Object> row = new LinkedHashMap<>();
                row.put("body", body);
                row.put("broker", message.getBrokerName());
                row.put("queue", message.getQueueId());
                row.put("offset", message.getQueueOffset());
                row.put("tries", message.getReconsumeTimes());
                row.put("topic", message.getTopic());
                row.put("id", message.getMsgId());
                row.put("began", began / 1000);
                row.put("ended", System.nanoTime() / 1000);
                row.put("stored", message.getStoreTimestamp());
                row.put("works", works);
                rows.add(row);
            }
            return fine;
        }
    }

    private final Producers producers;
    private final Map<String, Stream> streams = new HashMap<>();
    private final Map<String, Reader> readers = new HashMap<>();

    Semantics(Producers producers) {
        this.producers = producers;
    }

    Object run(String command, Driver.Arguments arguments) throws Exception {
        switch (command) {
            case "maker":
                return maker(arguments);
            case "stream":
                Stream stream = new Stream(producers.find(arguments.text("producer")), arguments);
                stream.setDaemon(true);
                stream.start();
                streams.put(stream.name, stream);
                return Collections.singletonMap("started", true);
            case "streamed":
                return streamed(streams.get(arguments.text("name")), arguments);
            case "reader":
                return reader(arguments);
            case "read":
                return read(readers.get(arguments.text("name")), arguments);
            default:
                return null;
        }
    }

    /** Settings that some versions have and others not: `key` of the arguments by its setter. */
    private static void set(Object target, String setter, Object value) throws Exception {
        for (var method : target.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                Class<?> kind = method.getParameterTypes()[0];
                if (kind.isEnum()) {
                    for (Object constant : kind.getEnumConstants()) {
                        if (((Enum<?>) constant).name().equals(value)) {
                            method.invoke(target, constant);
                        }
                    }
                } else {
                    method.invoke(target, value);
                }
                return;
            }
        }
        throw new NoSuchMethodException(setter);
    }

    private static void common(ClientConfig client, Driver.Arguments arguments) throws Exception {
        Doors.open(client, arguments);
        client.setNamesrvAddr(arguments.text("namesrv"));
        client.setInstanceName(arguments.text("name"));
        client.setPollNameServerInterval(1000);
        client.setMqClientApiTimeout(20_000); // the defaults of 3 s are what a busy machine may take
        client.setHeartbeatBrokerInterval(5000);
        client.setPersistConsumerOffsetInterval(500);
        if (arguments.has("namespace")) {
            client.setNamespace(arguments.text("namespace"));
        }
        if (arguments.has("namespaceV2")) {
            set(client, "setNamespaceV2", arguments.text("namespaceV2"));
        }
        if (arguments.has("unitName")) {
            client.setUnitName(arguments.text("unitName"));
            client.setUnitMode(true);
        }
    }

    private Object maker(Driver.Arguments arguments) throws Exception {
        String name = arguments.text("name");
        DefaultMQProducer producer = new DefaultMQProducer(
                "PG_" + name, Doors.hook(arguments), arguments.has("trace"), null);
        common(producer, arguments);
        producer.setSendMsgTimeout(20_000);
        if (arguments.has("compression")) {
            set(producer, "setCompressType", arguments.text("compression"));
        }
        producer.start();
        producers.keep(name, producer);
        return Collections.singletonMap("started", true);
    }

    private Object streamed(Stream stream, Driver.Arguments arguments) throws Exception {
        if (arguments.has("stop")) {
            stream.stopped = true;
            stream.join(30_000);
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        synchronized (stream.sent) {
            int from = Math.max(0, stream.sent.size() - arguments.number("last", Integer.MAX_VALUE));
            answer.put("sent", new ArrayList<>(stream.sent.subList(from, stream.sent.size())));
        }
        answer.put("failed", new ArrayList<>(stream.failed));
        return answer;
    }

    private Object reader(Driver.Arguments arguments) throws Exception {
        DefaultMQPushConsumer consumer =
                new DefaultMQPushConsumer(arguments.text("group"), Doors.hook(arguments),
                        new AllocateMessageQueueAveragely(), arguments.has("trace"), null);
        common(consumer, arguments);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setSuspendCurrentQueueTimeMillis(arguments.number("suspend", 100));
        consumer.setConsumeThreadMin(8);
        consumer.setConsumeThreadMax(8);
        if (arguments.has("maxReconsume")) {
            consumer.setMaxReconsumeTimes(arguments.number("maxReconsume", -1));
        }
        consumer.subscribe(arguments.text("topic"), "*");
        Reader reader = new Reader(consumer, arguments);
        int level = arguments.number("level", 0);
        if (arguments.has("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> reader.take(messages)
                    ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(level);
                return reader.take(messages)
                        ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                        : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        readers.put(arguments.text("name"), reader);
        return Collections.singletonMap("clientId", consumer.buildMQClientId());
    }

    /** The rows, once there are `min` of them or time is up; with `nudge` it rebalances often, with `stop` it ends. */
    private Object read(Reader reader, Driver.Arguments arguments) throws Exception {
        long end = System.currentTimeMillis() + arguments.number("timeout", 0);
        var client = reader.consumer.getDefaultMQPushConsumerImpl().getmQClientFactory();
        for (int turn = 1; reader.rows.size() < arguments.number("min", 0) && System.currentTimeMillis() < end; turn++) {
            if (arguments.has("nudge") && turn % 25 == 0) {
                client.rebalanceImmediately();
            }
            Thread.sleep(20);
        }
        if (arguments.has("nudge")) {
            client.rebalanceImmediately();
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("queues", Shapes.queues(reader.consumer.getDefaultMQPushConsumerImpl()
                .getRebalanceImpl().getProcessQueueTable().keySet()));
        if (arguments.has("stop")) {
            reader.consumer.shutdown();
            readers.remove(arguments.text("name"));
        }
        synchronized (reader.rows) {
            answer.put("rows", arguments.has("brief") ? new ArrayList<>() : new ArrayList<>(reader.rows));
            answer.put("count", reader.rows.size());
        }
        return answer;
    }
}
