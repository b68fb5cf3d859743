import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The commands of push consumers (consumer, dump, stop) and of lite pull consumers (lite, poll, ...). */
final class Consumers {
    /** A push consumer and all it was given, in the order of arrival. */
    private static final class Push {
        final DefaultMQPushConsumer consumer;
        final List<Object> seen = Collections.synchronizedList(new ArrayList<>());
        final int failUntil;

        Push(DefaultMQPushConsumer consumer, int failUntil) {
            this.consumer = consumer;
            this.failUntil = failUntil;
        }

        /** Records the messages; whether they count as consumed. */
        boolean take(List<MessageExt> messages) {
            boolean fine = true;
            for (MessageExt message : messages) {
                try {
                    Map<String, Object> shape = new LinkedHashMap<>(Shapes.message(message));
                    shape.put("thread", Thread.currentThread().getName());
                    seen.add(shape);
                } catch (Exception failure) {
                    seen.add(Driver.failed(failure));
                }
                fine &= message.getReconsumeTimes() >= failUntil;
            }
            return fine;
        }
    }

    private final Map<String, Push> pushing = new HashMap<>();
    private final Map<String, DefaultLitePullConsumer> pulling = new HashMap<>();

    Object run(String command, Driver.Arguments arguments) throws Exception {
        switch (command) {
            case "consumer":
                return start(arguments);
            case "dump":
                return dump(pushing.get(arguments.text("name")), arguments);
            case "stop":
                return stop(arguments.text("name"));
            case "lite":
                return lite(arguments);
            case "poll":
                return poll(pulling.get(arguments.text("name")), arguments);
            case "assign":
            case "seek":
            case "commit":
                return move(command, pulling.get(arguments.text("name")), arguments);
            default:
                return null;
        }
    }

    // MessageModel moved between 4.9 and 5.x: `var` keeps one source for both.
    private Object start(Driver.Arguments arguments) throws Exception {
        String name = arguments.text("name");
        DefaultMQPushConsumer consumer = Doors.push(arguments);
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName("consumer-" + name);
        consumer.setPollNameServerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
                arguments.text("from", "CONSUME_FROM_FIRST_OFFSET")));
        if (arguments.text("model", "clustering").equals("broadcasting")) {
            for (var model : consumer.getMessageModel().getClass().getEnumConstants()) {
                if (model.name().equals("BROADCASTING")) {
                    consumer.setMessageModel(model);
                }
            }
        }
        if (arguments.has("maxReconsume")) {
            consumer.setMaxReconsumeTimes(arguments.number("maxReconsume", -1));
        }
        if (arguments.has("heartbeatV2")) { // 5.x only
            consumer.getClass().getMethod("setUseHeartbeatV2", boolean.class).invoke(consumer, true);
            consumer.setHeartbeatBrokerInterval(1000);
        }
        if (arguments.has("strategy")) {
            consumer.setAllocateMessageQueueStrategy(Strategies.find(arguments));
        }
        consumer.setConsumeMessageBatchMaxSize(arguments.number("batch", 1));
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.subscribe(arguments.text("topic"), arguments.text("expression", "*"));
        Push push = new Push(consumer, arguments.number("failUntil", 0));
        if (arguments.has("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> push.take(messages)
                    ? ConsumeOrderlyStatus.SUCCESS
                    : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> push.take(messages)
                    ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                    : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        pushing.put(name, push);
        return Collections.singletonMap("clientId", consumer.buildMQClientId());
    }

    /** What a push consumer has seen and which queues it has, once `min` messages are there or time is up. */
    private Object dump(Push push, Driver.Arguments arguments) throws Exception {
        long end = System.currentTimeMillis() + arguments.number("timeout", 0);
        for (int turn = 1; push.seen.size() < arguments.number("min", 0) && System.currentTimeMillis() < end; turn++) {
            if (arguments.has("nudge") && turn % 25 == 0) { // not wait 20 s for the next rebalance
                push.consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().rebalanceImmediately();
            }
            Thread.sleep(20);
        }
        if (arguments.has("nudge")) {
            push.consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().rebalanceImmediately();
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        synchronized (push.seen) {
            answer.put("messages", new ArrayList<>(push.seen));
        }
        answer.put("queues", Shapes.queues(push.consumer.getDefaultMQPushConsumerImpl()
                .getRebalanceImpl().getProcessQueueTable().keySet()));
        return answer;
    }

    private Object stop(String name) {
        Push push = pushing.remove(name);
        if (push != null) {
            push.consumer.shutdown();
        } else {
            pulling.remove(name).shutdown();
        }
        return Collections.singletonMap("stopped", true);
    }

    private Object lite(Driver.Arguments arguments) throws Exception {
        DefaultLitePullConsumer consumer = Doors.open(
                new DefaultLitePullConsumer(arguments.text("group"), Doors.hook(arguments)), arguments);
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName("lite-" + arguments.text("name"));
        consumer.setPollNameServerInterval(1000);
        consumer.setAutoCommitIntervalMillis(1000);
        consumer.setAutoCommit(!arguments.has("manual"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(
                arguments.text("from", "CONSUME_FROM_FIRST_OFFSET")));
        if (!arguments.has("assigned")) {
            consumer.subscribe(arguments.text("topic"), arguments.text("expression", "*"));
        }
        consumer.start();
        pulling.put(arguments.text("name"), consumer);
        return Collections.singletonMap("started", true);
    }

    private Object poll(DefaultLitePullConsumer consumer, Driver.Arguments arguments) throws Exception {
        long end = System.currentTimeMillis() + arguments.number("timeout", 1000);
        List<Object> found = new ArrayList<>();
        do {
            found.addAll(Shapes.messages(consumer.poll(200)));
        } while (found.size() < arguments.number("min", 1) && System.currentTimeMillis() < end);
        return Collections.singletonMap("messages", found);
    }

    private Object move(String command, DefaultLitePullConsumer consumer, Driver.Arguments arguments) throws Exception {
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(arguments.text("topic"));
        if (arguments.has("queue")) {
            List<MessageQueue> chosen = new ArrayList<>();
            for (MessageQueue queue : queues) {
                if (queue.getQueueId() == arguments.number("queue", 0)) {
                    chosen.add(queue);
                }
            }
            queues = chosen;
        }
        Map<String, Object> committed = new LinkedHashMap<>();
        if (command.equals("assign")) {
            consumer.assign(queues);
        } else if (command.equals("seek")) {
            for (MessageQueue queue : queues) {
                consumer.seek(queue, arguments.big("offset", 0));
            }
        } else {
            consumer.commitSync();
            for (MessageQueue queue : queues) {
                committed.put(String.valueOf(queue.getQueueId()), consumer.committed(queue));
            }
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("queues", Shapes.queues(queues));
        answer.put("committed", committed);
        return answer;
    }
}
