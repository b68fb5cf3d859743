import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The commands of consumers with SQL92 selectors: sqlPush, sqlLite, sqlSeen, sqlStop, sqlPull. */
final class Filters {
    private final Map<String, DefaultMQPushConsumer> pushing = new HashMap<>();
    private final Map<String, DefaultLitePullConsumer> pulling = new HashMap<>();
    private final Map<String, List<Object>> seen = new HashMap<>();

    Object run(String command, Driver.Arguments arguments) throws Exception {
        switch (command) {
            case "sqlPush":
                return push(arguments);
            case "sqlLite":
                return lite(arguments);
            case "sqlSeen":
                return seen(arguments);
            case "sqlStop":
                return stop(arguments.text("name"));
            case "sqlPull":
                return pull(arguments);
            default:
                return null;
        }
    }

    private Object push(Driver.Arguments arguments) throws Exception {
        String name = arguments.text("name");
        DefaultMQPushConsumer consumer = Doors.push(arguments);
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName("sql-" + name);
        consumer.setPollNameServerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments.text("topic"), MessageSelector.bySql(arguments.text("sql")));
        List<Object> messages = Collections.synchronizedList(new ArrayList<>());
        int failUntil = arguments.number("failUntil", 0);
        consumer.registerMessageListener((MessageListenerConcurrently) (found, context) -> {
            boolean fine = true;
            for (MessageExt message : found) {
                try {
                    messages.add(Shapes.message(message));
                } catch (Exception failure) {
                    messages.add(Driver.failed(failure));
                }
                fine &= message.getReconsumeTimes() >= failUntil;
            }
            return fine ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        try {
            consumer.start();
        } catch (Exception failure) {
            consumer.shutdown();
            throw failure;
        }
        pushing.put(name, consumer);
        seen.put(name, messages);
        return Collections.singletonMap("clientId", consumer.buildMQClientId());
    }

    private Object lite(Driver.Arguments arguments) throws Exception {
        String name = arguments.text("name");
        DefaultLitePullConsumer consumer = Doors.open(
                new DefaultLitePullConsumer(arguments.text("group"), Doors.hook(arguments)), arguments);
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName("sql-lite-" + name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments.text("topic"), MessageSelector.bySql(arguments.text("sql")));
        consumer.start();
        pulling.put(name, consumer);
        seen.put(name, Collections.synchronizedList(new ArrayList<>()));
        return Collections.singletonMap("started", true);
    }

    /** What a consumer got, once `min` messages are there and `quiet` ms more have gone, or time is up. */
    private Object seen(Driver.Arguments arguments) throws Exception {
        String name = arguments.text("name");
        List<Object> messages = seen.get(name);
        long end = System.currentTimeMillis() + arguments.number("timeout", 1000);
        long quiet = arguments.number("quiet", 0);
        for (int turn = 1; System.currentTimeMillis() < end; turn++) {
            if (pushing.containsKey(name) && turn % 25 == 0) { // the retry topic, not 20 s later
                pushing.get(name).getDefaultMQPushConsumerImpl().getmQClientFactory().rebalanceImmediately();
            }
            if (pulling.containsKey(name)) {
                messages.addAll(Shapes.messages(pulling.get(name).poll(100)));
            }
            if (messages.size() >= arguments.number("min", 0)) {
                end = Math.min(end, System.currentTimeMillis() + quiet);
                quiet = Long.MAX_VALUE / 4;
            }
            Thread.sleep(20);
        }
        synchronized (messages) {
            return Collections.singletonMap("messages", new ArrayList<>(messages));
        }
    }

    private Object stop(String name) {
        if (pushing.containsKey(name)) {
            pushing.remove(name).shutdown();
        } else {
            pulling.remove(name).shutdown();
        }
        return Collections.singletonMap("stopped", true);
    }

    /** Pulls when a heartbeat was answered: the client leaves one out while another is on its way. */
    private static PullResult pullOnceKnown(
            MQClientInstance client, DefaultMQPullConsumer consumer, MessageQueue queue, Driver.Arguments arguments)
            throws Exception {
        MessageSelector selector = MessageSelector.bySql(arguments.text("sql"));
        for (int turn = 1;; turn++) {
            client.sendHeartbeatToAllBrokerWithLock();
            try {
                return consumer.pull(queue, selector, arguments.big("offset", 0), 32);
            } catch (MQClientException failure) {
                if (turn == 100 || !String.valueOf(failure.getMessage()).contains("does not upgrade")) {
                    throw failure;
                }
                Thread.sleep(100);
            }
        }
    }

    /** One pull that brings its selector. */
    private Object pull(Driver.Arguments arguments) throws Exception {
        DefaultMQPullConsumer consumer = Doors.open(
                new DefaultMQPullConsumer(arguments.text("group"), Doors.hook(arguments)), arguments);
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName("sql-pull-" + System.nanoTime());
        consumer.start();
        try {
            // The client wants to have seen the broker's version in a heartbeat's answer before it sends a selector.
            MQClientInstance client =
                    consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
            client.updateTopicRouteInfoFromNameServer(arguments.text("topic"));
            MessageQueue queue = new MessageQueue(
                    arguments.text("topic"), arguments.text("brokerName"), arguments.number("queue", 0));
            PullResult result = pullOnceKnown(client, consumer, queue, arguments);
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("status", result.getPullStatus().name());
            answer.put("nextBeginOffset", result.getNextBeginOffset());
            answer.put("messages", Shapes.messages(
                    result.getMsgFoundList() == null ? new ArrayList<>() : result.getMsgFoundList()));
            return answer;
        } finally {
            consumer.shutdown();
        }
    }
}
