import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions (tproducer, tsend, tsendlater, trelease, tchecks, tdrop) and request-reply (request, replier, replies). */
final class Transactions {
    /** Does what the message's properties say: `local` first, `check` when asked, from the check numbered `from` on. */
    private static final class Listener implements TransactionListener {
        final List<Object> checks = Collections.synchronizedList(new ArrayList<>());
        final Map<String, Integer> times = new HashMap<>();
        volatile CountDownLatch held = new CountDownLatch(0);

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            try {
                held.await(30, TimeUnit.SECONDS);
            } catch (InterruptedException ended) {
                return LocalTransactionState.UNKNOW;
            }
            return state(message.getUserProperty("local"));
        }

        @Override
        public synchronized LocalTransactionState checkLocalTransaction(MessageExt message) {
            try {
                Map<String, Object> shape = new LinkedHashMap<>(Shapes.message(message));
                shape.put("transactionId", message.getTransactionId());
                checks.add(shape);
            } catch (Exception failure) {
                checks.add(Driver.failed(failure));
            }
            int time = times.merge(message.getTransactionId(), 1, Integer::sum);
            String from = message.getUserProperty("from");
            if (from != null && time < Integer.parseInt(from)) {
                return LocalTransactionState.UNKNOW;
            }
            return state(message.getUserProperty("check"));
        }

        private static LocalTransactionState state(String word) {
            switch (String.valueOf(word)) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }
    }

    private final Producers producers;
    private final Map<String, TransactionMQProducer> started = new HashMap<>();
    private final Map<String, Listener> listeners = new HashMap<>();
    private final Map<String, List<Object>> replies = new HashMap<>();
    private final Map<String, DefaultMQPushConsumer> repliers = new HashMap<>();

    Transactions(Producers producers) {
        this.producers = producers;
    }

    Object run(String command, Driver.Arguments arguments) throws Exception {
        switch (command) {
            case "tproducer":
                return start(arguments);
            case "tsend":
                return send(arguments);
            case "tsendlater":
                return sendLater(arguments);
            case "trelease":
                listeners.get(arguments.text("name")).held.countDown();
                return Collections.singletonMap("released", true);
            case "tchecks":
                List<Object> checks = listeners.get(arguments.text("name")).checks;
                synchronized (checks) {
                    return Collections.singletonMap("checks", new ArrayList<>(checks));
                }
            case "tdrop":
                started.remove(arguments.text("name")).shutdown();
                return Collections.singletonMap("dropped", true);
            case "request":
                return request(arguments);
            case "replier":
                return replier(arguments);
            case "replies":
                List<Object> done = replies.get(arguments.text("name"));
                synchronized (done) {
                    return Collections.singletonMap("replies", new ArrayList<>(done));
                }
            case "replierstop":
                repliers.remove(arguments.text("name")).shutdown();
                return Collections.singletonMap("stopped", true);
            default:
                return null;
        }
    }

    private Object start(Driver.Arguments arguments) throws Exception {
        String name = arguments.text("name");
        TransactionMQProducer producer = Doors.open(
                new TransactionMQProducer(arguments.text("group"), Doors.hook(arguments)), arguments);
        Listener listener = new Listener();
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setInstanceName("transactions-" + name);
        producer.setPollNameServerInterval(1000);
        producer.setHeartbeatBrokerInterval(1000);
        producer.setSendMsgTimeout(10000);
        producer.setTransactionListener(listener);
        producer.start();
        if (arguments.has("topic")) { // a producer of 5.5 that has not sent knows no broker, and tells none of its group
            Object inner = producer.getDefaultMQProducerImpl();
            for (Method method : inner.getClass().getMethods()) { // its name differs between 4.9 and 5.x
                if (method.getReturnType() == MQClientInstance.class) {
                    MQClientInstance client = (MQClientInstance) method.invoke(inner);
                    client.updateTopicRouteInfoFromNameServer(arguments.text("topic"));
                    client.sendHeartbeatToAllBrokerWithLock(); // not a second later: checks count without it, too
                }
            }
        }
        started.put(name, producer);
        listeners.put(name, listener);
        return Collections.singletonMap("clientId", producer.buildMQClientId());
    }

    private List<Message> messages(Driver.Arguments arguments) {
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < arguments.number("count", 1); i++) {
            String body = arguments.text("body", "m") + "-" + i;
            if (arguments.has("size")) {
                body = body + "x".repeat(arguments.number("size", 0));
            }
            Message message = new Message(arguments.text("topic"), body.getBytes(StandardCharsets.UTF_8));
            message.setFlag(arguments.number("flag", 0));
            if (arguments.has("tags")) {
                message.setTags(arguments.text("tags"));
            }
            if (arguments.has("keys")) {
                message.setKeys(arguments.text("keys") + "-" + i);
            }
            if (arguments.has("delay")) {
                message.setDelayTimeLevel(arguments.number("delay", 0));
            }
            if (arguments.has("immunity")) {
                message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", arguments.text("immunity"));
            }
            for (String word : new String[] {"local", "check", "from"}) {
                if (arguments.has(word)) {
                    message.putUserProperty(word, arguments.text(word));
                }
            }
            arguments.below("property.").forEach(message::putUserProperty);
            messages.add(message);
        }
        return messages;
    }

    private Object send(Driver.Arguments arguments) throws Exception {
        TransactionMQProducer producer = started.get(arguments.text("name"));
        List<Object> results = new ArrayList<>();
        for (Message message : messages(arguments)) {
            TransactionSendResult sent = producer.sendMessageInTransaction(message, null);
            Map<String, Object> shape = new LinkedHashMap<>(Shapes.sent(sent));
            shape.put("transactionId", sent.getTransactionId());
            shape.put("state", sent.getLocalTransactionState().name());
            results.add(shape);
        }
        return Collections.singletonMap("results", results);
    }

    /** Sends in a thread; the local transactions wait for trelease. */
    private Object sendLater(Driver.Arguments arguments) throws Exception {
        Listener listener = listeners.get(arguments.text("name"));
        listener.held = new CountDownLatch(1);
        for (Message message : messages(arguments)) {
            new Thread(() -> {
                try {
                    started.get(arguments.text("name")).sendMessageInTransaction(message, null);
                } catch (Exception failure) {
                    failure.printStackTrace();
                }
            }).start();
        }
        return Collections.singletonMap("started", true);
    }

    private Object request(Driver.Arguments arguments) throws Exception {
        DefaultMQProducer producer = producers.find(arguments.text("name"));
        String body = arguments.text("body", "question") + "x".repeat(arguments.number("size", 0));
        Message message = new Message(arguments.text("topic"), body.getBytes(StandardCharsets.UTF_8));
        return Shapes.message((MessageExt) producer.request(message, arguments.number("timeout", 10000)));
    }

    /** A consumer that answers each request with its body, and `size` letters more, after `wait` ms. */
    private Object replier(Driver.Arguments arguments) throws Exception {
        String name = arguments.text("name");
        DefaultMQProducer producer = producers.find(arguments.text("producer"));
        List<Object> done = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer consumer = Doors.push(arguments);
        consumer.setNamesrvAddr(arguments.text("namesrv"));
        consumer.setInstanceName("replier-" + name);
        consumer.setPollNameServerInterval(1000);
        consumer.subscribe(arguments.text("topic"), "*");
        int size = arguments.number("size", 0);
        int wait = arguments.number("wait", 0);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    Thread.sleep(wait);
                    String body = "reply to " + new String(message.getBody(), StandardCharsets.UTF_8);
                    Message reply = MessageUtil.createReplyMessage(
                            message, (body + "y".repeat(size)).getBytes(StandardCharsets.UTF_8));
                    Map<String, Object> shape = new LinkedHashMap<>(Shapes.sent(producer.send(reply, 12000)));
                    shape.put("request", new java.util.TreeMap<>(message.getProperties()));
                    done.add(shape);
                } catch (Exception failure) {
                    done.add(Driver.failed(failure));
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        var inner = consumer.getDefaultMQPushConsumerImpl();
        var rebalance = inner.getRebalanceImpl();
        String topic = arguments.text("topic"); // the group's retry queue comes too, and may come first
        for (int turn = 1; turn < 200; turn++) {
            var all = rebalance.getTopicSubscribeInfoTable().get(topic);
            long own = rebalance.getProcessQueueTable().keySet().stream().filter(q -> q.getTopic().equals(topic)).count();
            // Of a queue whose end is still being asked for, what is sent meanwhile is not read.
            if (all != null && own == all.size()) {
                break;
            }
            Thread.sleep(50);
            if (turn % 10 == 0) { // not wait 20 s for the next rebalance
                inner.getmQClientFactory().rebalanceImmediately();
            }
        }
        replies.put(name, done);
        repliers.put(name, consumer);
        return Collections.singletonMap("started", true);
    }
}
