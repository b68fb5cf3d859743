import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Apache's v5 client for Java as a program the tests drive: a command a line, a line of JSON an answer.
 *
 * <p>The commands are the same in every language (../../v5.py).
 */
public final class Peer {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final Pattern CODE = Pattern.compile("response-code=(\\d+)");
    private static final Map<String, Producer> PRODUCERS = new ConcurrentHashMap<>();
    private static final Map<String, PushConsumer> PUSHED = new ConcurrentHashMap<>();
    private static final Map<String, List<Object>> SEEN = new ConcurrentHashMap<>();
    private static final Map<String, CountDownLatch> HELD = new ConcurrentHashMap<>();
    private static final Map<String, SimpleConsumer> SIMPLE = new ConcurrentHashMap<>();
    private static final Map<String, MessageView> VIEWS = new ConcurrentHashMap<>();

    private Peer() {
    }

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        answers.println("{\"ready\":true}");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                String[] words = line.split("\t");
                Map<String, String> given = new LinkedHashMap<>();
                for (int i = 1; i < words.length; i++) {
                    int equals = words[i].indexOf('=');
                    given.put(words[i].substring(0, equals),
                            URLDecoder.decode(words[i].substring(equals + 1), StandardCharsets.UTF_8));
                }
                run(words[0], given, answer);
            } catch (Throwable failure) {
                failure.printStackTrace();
                answer = failed(failure);
            }
            answers.println(Json.write(answer));
            answers.flush();
        }
        System.exit(0);
    }

    private static void run(String command, Map<String, String> a, Map<String, Object> answer) throws Exception {
        String name = a.get("name");
        switch (command) {
            case "producer":
                producer(a);
                break;
            case "send":
                send(a, answer);
                break;
            case "transaction":
                transaction(a, answer);
                break;
            case "recall":
                answer.put("msgId", PRODUCERS.get(name).recallMessage(a.get("topic"), a.get("handle"))
                        .getMessageId().toString());
                break;
            case "push":
                push(a);
                break;
            case "release":
                HELD.get(name).countDown();
                break;
            case "dump":
                dump(a, answer);
                break;
            case "simple":
                SIMPLE.put(name, PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration(a))
                        .setConsumerGroup(a.get("group")).setAwaitDuration(Duration.ofSeconds(number(a, "await", 5)))
                        .setSubscriptionExpressions(Collections.singletonMap(a.get("topic"), filter(a))).build());
                break;
            case "receive":
                List<Object> told = new ArrayList<>();
                for (MessageView view : SIMPLE.get(name).receive((int) number(a, "count", 16),
                        Duration.ofSeconds(number(a, "invisible", 20)))) {
                    VIEWS.put(view.getMessageId().toString(), view);
                    told.add(told(view));
                }
                answer.put("messages", told);
                break;
            case "ack":
                SIMPLE.get(name).ack(VIEWS.get(a.get("msgId")));
                break;
            case "change":
                SIMPLE.get(name).changeInvisibleDuration(VIEWS.get(a.get("msgId")),
                        Duration.ofSeconds(number(a, "invisible", 10)));
                break;
            case "stop":
                stop(name);
                break;
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
        answer.put("done", true);
    }

    private static long number(Map<String, String> a, String key, long otherwise) {
        return a.containsKey(key) ? Long.parseLong(a.get(key)) : otherwise;
    }

    private static ClientConfiguration configuration(Map<String, String> a) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(a.get("endpoints"))
                .enableSsl(a.containsKey("tls")).setNamespace(a.getOrDefault("namespace", ""));
        if (a.containsKey("accessKey")) {
            builder.setCredentialProvider(
                    new StaticSessionCredentialsProvider(a.get("accessKey"), a.get("secretKey")));
        }
        return builder.build();
    }

    private static FilterExpression filter(Map<String, String> a) {
        if (a.containsKey("sql")) {
            return new FilterExpression(a.get("sql"), FilterExpressionType.SQL92);
        }
        return new FilterExpression(a.getOrDefault("tags", "*"));
    }

    private static void producer(Map<String, String> a) throws Exception {
        List<Object> checked = Collections.synchronizedList(new ArrayList<>());
        SEEN.put(a.get("name"), checked);
        PRODUCERS.put(a.get("name"), PROVIDER.newProducerBuilder().setClientConfiguration(configuration(a))
                .setTopics(a.get("topic")).setTransactionChecker(view -> {
                    checked.add(told(view));
                    return TransactionResolution.valueOf(a.getOrDefault("check", "UNKNOWN"));
                }).build());
    }

    private static MessageBuilder message(Map<String, String> a, int i) {
        String body = a.getOrDefault("body", "m") + "-" + i;
        MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(a.get("topic"))
                .setBody(body.getBytes(StandardCharsets.UTF_8));
        if (a.containsKey("tag")) {
            builder.setTag(a.get("tag"));
        }
        if (a.containsKey("key")) {
            builder.setKeys(a.get("key"));
        }
        if (a.containsKey("order")) {
            builder.setMessageGroup(a.get("order"));
        }
        if (a.containsKey("delay")) {
            builder.setDeliveryTimestamp(System.currentTimeMillis() + number(a, "delay", 0));
        }
        if (a.containsKey("priority")) {
            builder.setPriority((int) number(a, "priority", 0));
        }
        a.forEach((key, value) -> {
            if (key.startsWith("property.")) {
                builder.addProperty(key.substring("property.".length()), value);
            }
        });
        return builder;
    }

    private static void send(Map<String, String> a, Map<String, Object> answer) throws Exception {
        List<Object> results = new ArrayList<>();
        for (int i = 0; i < number(a, "count", 1); i++) {
            SendReceipt receipt = PRODUCERS.get(a.get("name")).send(message(a, i).build());
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("msgId", receipt.getMessageId().toString());
            result.put("recallHandle", receipt.getRecallHandle());
            results.add(result);
        }
        answer.put("results", results);
    }

    private static void transaction(Map<String, String> a, Map<String, Object> answer) throws Exception {
        Producer producer = PRODUCERS.get(a.get("name"));
        Transaction transaction = producer.beginTransaction();
        answer.put("msgId", producer.send(message(a, 0).build(), transaction).getMessageId().toString());
        String end = a.getOrDefault("end", "none");
        if (end.equals("commit")) {
            transaction.commit();
        } else if (end.equals("rollback")) {
            transaction.rollback();
        }
    }

    private static void push(Map<String, String> a) throws Exception {
        List<Object> seen = Collections.synchronizedList(new ArrayList<>());
        SEEN.put(a.get("name"), seen);
        long failUntil = number(a, "failUntil", 0);
        CountDownLatch released = new CountDownLatch(a.containsKey("hold") ? 1 : 0);
        HELD.put(a.get("name"), released);
        PUSHED.put(a.get("name"), PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration(a))
                .setConsumerGroup(a.get("group"))
                .setSubscriptionExpressions(Collections.singletonMap(a.get("topic"), filter(a)))
                .setMessageListener(view -> {
                    seen.add(told(view));
                    try {
                        released.await();
                    } catch (InterruptedException ended) {
                        return ConsumeResult.FAILURE;
                    }
                    return view.getDeliveryAttempt() <= failUntil ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
                }).build());
    }

    private static void dump(Map<String, String> a, Map<String, Object> answer) throws Exception {
        List<Object> seen = SEEN.get(a.get("name"));
        long end = System.nanoTime() + number(a, "timeout", 0) * 1_000_000;
        while (seen.size() < number(a, "min", 0) && System.nanoTime() < end) {
            Thread.sleep(10);
        }
        synchronized (seen) {
            answer.put("messages", new ArrayList<>(seen));
        }
    }

    private static void stop(String name) throws Exception {
        for (AutoCloseable one : new AutoCloseable[] {PRODUCERS.remove(name), PUSHED.remove(name), SIMPLE.remove(name)}) {
            if (one != null) {
                one.close();
            }
        }
    }

    private static Map<String, Object> told(MessageView view) {
        ByteBuffer body = view.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        Map<String, Object> shape = new LinkedHashMap<>();
        shape.put("body", new String(bytes, StandardCharsets.UTF_8));
        shape.put("msgId", view.getMessageId().toString());
        shape.put("topic", view.getTopic());
        shape.put("tag", view.getTag().orElse(null));
        shape.put("keys", view.getKeys());
        shape.put("order", view.getMessageGroup().orElse(null));
        shape.put("properties", view.getProperties());
        shape.put("attempt", view.getDeliveryAttempt());
        shape.put("bornHost", view.getBornHost());
        shape.put("at", System.currentTimeMillis());
        return shape;
    }

    private static Map<String, Object> failed(Throwable failure) {
        Throwable root = failure;
        while (root.getCause() != null && root.getCause() != root) {
            root = root.getCause();
        }
        Map<String, Object> shape = new LinkedHashMap<>();
        shape.put("error", failure.getClass().getSimpleName());
        shape.put("text", String.valueOf(failure.getMessage()));
        shape.put("rootText", String.valueOf(root.getMessage()));
        Matcher code = CODE.matcher(String.valueOf(root.getMessage()));
        if (code.find()) {
            shape.put("code", Integer.parseInt(code.group(1)));
        }
        return shape;
    }
}
