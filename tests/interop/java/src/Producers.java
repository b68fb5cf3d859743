import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** The commands producer, send and drop. */
final class Producers {
    private final Map<String, DefaultMQProducer> started = new HashMap<>();
    private final Map<String, Thread> leaving = new HashMap<>();

    DefaultMQProducer find(String name) {
        DefaultMQProducer producer = started.get(name);
        if (producer == null) {
            throw new IllegalArgumentException("no producer " + name);
        }
        return producer;
    }

    void keep(String name, DefaultMQProducer producer) {
        started.put(name, producer);
    }

    Object run(String command, Driver.Arguments arguments) throws Exception {
        switch (command) {
            case "producer":
                return start(arguments);
            case "send":
                return send(find(arguments.text("name")), arguments);
            case "drop":
                find(arguments.text("name"));
                leave(arguments.text("name"));
                return Collections.singletonMap("dropped", true);
            default:
                return null;
        }
    }

    /** Nobody waits for a producer that goes: 5.5.0 takes three seconds for it. */
    private void leave(String name) {
        Thread thread = new Thread(started.remove(name)::shutdown, "leaving-" + name);
        thread.setDaemon(true);
        leaving.put(name, thread);
        thread.start();
    }

    private Object start(Driver.Arguments arguments) throws Exception {
        String name = arguments.text("name");
        Thread before = leaving.remove(name);
        if (before != null) {
            before.join(); // it has the same client
        }
        DefaultMQProducer producer = Doors.open(
                new DefaultMQProducer(arguments.text("group", "PG_" + name), Doors.hook(arguments)), arguments);
        producer.setNamesrvAddr(arguments.text("namesrv"));
        producer.setInstanceName("producer-" + name);
        producer.setPollNameServerInterval(arguments.number("poll", 1000));
        producer.setSendMsgTimeout(20_000);
        producer.setMqClientApiTimeout(20_000); // the defaults of 3 s are what a busy machine may take
        producer.setRetryTimesWhenSendFailed(arguments.number("retries", 2));
        producer.setCompressMsgBodyOverHowmuch(arguments.number("compressOver", 4096));
        producer.start();
        started.put(name, producer);
        return Collections.singletonMap("clientId", producer.buildMQClientId());
    }

    /** Messages 0..count-1; the body is "body-i", or `size` bytes of a repeated text. */
    private List<Message> messages(Driver.Arguments arguments) {
        List<Message> messages = new ArrayList<>();
        int first = arguments.number("first", 0);
        for (int i = first; i < first + arguments.number("count", 1); i++) {
            byte[] body = (arguments.text("body", "m") + "-" + i).getBytes(StandardCharsets.UTF_8);
            if (arguments.has("size")) {
                byte[] big = new byte[arguments.number("size", 0)];
                for (int at = 0; at < big.length; at++) {
                    big[at] = (byte) ('a' + at % 26);
                }
                body = big;
            }
            Message message = new Message(arguments.text("topic"), body);
            if (arguments.has("tags")) {
                String[] tags = arguments.text("tags").split(",");
                message.setTags(tags[i % tags.length]);
            }
            if (arguments.has("keys")) {
                message.setKeys(arguments.text("keys") + (arguments.has("oneKey") ? "" : "-" + i));
            }
            if (arguments.has("delay")) {
                message.setDelayTimeLevel(arguments.number("delay", 0));
            }
            arguments.below("property.").forEach(message::putUserProperty);
            messages.add(message);
        }
        return messages;
    }

    private Object send(DefaultMQProducer producer, Driver.Arguments arguments) throws Exception {
        List<Message> messages = messages(arguments);
        List<Object> results = new ArrayList<>();
        String mode = arguments.text("mode", "sync");
        if (mode.equals("batch")) {
            results.add(Shapes.sent(producer.send(messages)));
        } else if (mode.equals("async")) {
            results = async(producer, messages);
        } else {
            for (Message message : messages) {
                one(producer, mode, message, arguments, results);
            }
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("results", results);
        return answer;
    }

    private void one(
            DefaultMQProducer producer, String mode, Message message, Driver.Arguments arguments, List<Object> results)
            throws Exception {
        if (mode.equals("oneway")) {
            producer.sendOneway(message);
        } else if (mode.equals("selector")) {
            results.add(Shapes.sent(producer.send(
                    message, (queues, m, argument) -> queues.get((Integer) argument % queues.size()),
                    arguments.number("argument", 0))));
        } else if (mode.equals("forced")) { // a queue the name servers need not know
            results.add(Shapes.sent(producer.send(message, new MessageQueue(
                    message.getTopic(), arguments.text("brokerName"), arguments.number("queueId", 0)))));
        } else if (mode.equals("queue")) {
            List<MessageQueue> queues = producer.fetchPublishMessageQueues(message.getTopic());
            for (MessageQueue queue : queues) {
                if (queue.getQueueId() == arguments.number("queue", 0)) {
                    results.add(Shapes.sent(producer.send(message, queue)));
                    return;
                }
            }
            throw new IllegalArgumentException("no such queue among " + queues);
        } else {
            results.add(Shapes.sent(producer.send(message)));
        }
    }

    private List<Object> async(DefaultMQProducer producer, List<Message> messages) throws Exception {
        List<Object> results = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch open = new CountDownLatch(messages.size());
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    results.add(Shapes.sent(result));
                    open.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    results.add(Driver.failed(failure));
                    open.countDown();
                }
            });
        }
        if (!open.await(30, TimeUnit.SECONDS)) {
            throw new IllegalStateException(open.getCount() + " callbacks did not come");
        }
        return results;
    }
}
