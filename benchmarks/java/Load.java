import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;

/**
 * Load by Apache's own Java client, one JVM for all rows and all servers, so that it stays warm.
 * Each line of stdin is "verb key=value ..."; each is answered by one line of JSON on stdout.
 *
 *   send  ns= topic= threads=1 body=128 batch=1 warmup=0 seconds=5 pid=   synchronous sends, one producer
 *   async ns= topic= inflight=256 body=128 warmup=0 seconds=5 pid=
 *   push  ns= topic= threads=20 batch=1 expect= pid=                      a new group drains the topic
 *   pull  ns= topic= threads=1 expect= pid=                               queues split over the threads
 *
 * send and async: tls=FILE (its tls.config.file), access= and secret= sign.
 *
 * cpu_s is what the broker (process pid) used while the measured part ran, user and system, all its threads.
 */
public class Load {
    static final AtomicInteger NUMBER = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.out.println("{\"ready\":true}");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.trim().split(" ");
            Map<String, String> settings = new HashMap<>();
            for (int i = 1; i < words.length; i++) {
                int equals = words[i].indexOf('=');
                settings.put(words[i].substring(0, equals), words[i].substring(equals + 1));
            }
            Run run = new Run(settings);
            try {
                switch (words[0]) {
                    case "send": run.send(); break;
                    case "async": run.async(); break;
                    case "push": run.push(); break;
                    case "pull": run.pull(); break;
                    default: throw new IllegalArgumentException(words[0]);
                }
            } catch (Exception error) {
                run.note(error);
            }
            System.out.println(run.json());
        }
        System.exit(0);
    }

    /** One row: its settings and what it found. */
    static class Run {
        final Map<String, String> settings;
        final int number = NUMBER.incrementAndGet();
        final AtomicLong messages = new AtomicLong();
        final AtomicLong errors = new AtomicLong();
        final AtomicReference<String> firstError = new AtomicReference<>("");
        final List<long[]> latencies = Collections.synchronizedList(new ArrayList<>());
        volatile boolean counting;
        volatile boolean over;
        double cpu, cpuStart;
        long started, ended;

        Run(Map<String, String> settings) {
            this.settings = settings;
        }

        String text(String key) {
            return settings.get(key);
        }

        int number(String key, int otherwise) {
            return settings.containsKey(key) ? Integer.parseInt(settings.get(key)) : otherwise;
        }

        double brokerCpu() {
            try {
                String stat = Files.readString(Path.of("/proc/" + text("pid") + "/stat"));
                String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
                return (Long.parseLong(fields[11]) + Long.parseLong(fields[12])) / 100.0;
            } catch (Exception error) {
                throw new IllegalStateException("the measured process is gone", error);
            }
        }

        void begin() {
            cpuStart = brokerCpu();
            started = System.nanoTime();
            counting = true;
        }

        void end() {
            counting = false;
            ended = System.nanoTime();
            cpu = brokerCpu() - cpuStart;
            over = true;
        }

        void note(Throwable error) {
            errors.incrementAndGet();
            firstError.compareAndSet("", String.valueOf(error));
        }

        RPCHook hook() {
            return settings.containsKey("access")
                    ? new AclClientRPCHook(new SessionCredentials(text("access"), text("secret"))) : null;
        }

        DefaultMQProducer producer() throws Exception {
            DefaultMQProducer producer = new DefaultMQProducer("bench_java_" + number, hook());
            if (settings.containsKey("tls")) { // the property file of a client's TLS
                TlsSystemConfig.tlsConfigFile = text("tls");
                producer.setUseTLS(true);
            }
            producer.setNamesrvAddr(text("ns"));
            producer.setInstanceName("producer" + number);
            producer.setRetryTimesWhenSendFailed(0);
            producer.setRetryTimesWhenSendAsyncFailed(0);
            producer.start();
            return producer;
        }

        Message message() {
            byte[] body = new byte[number("body", 128)];
            Arrays.fill(body, (byte) 'x');
            return new Message(text("topic"), "TagA", body);
        }

        void send() throws Exception {
            int threads = number("threads", 1), batch = number("batch", 1);
            DefaultMQProducer producer = producer();
            AtomicLong warm = new AtomicLong(number("warmup", 0));
            List<Thread> workers = new ArrayList<>();
            for (int t = 0; t < threads; t++) {
                Thread worker = new Thread(() -> sendLoop(producer, batch, warm));
                worker.start();
                workers.add(worker);
            }
            while (warm.get() > 0) Thread.sleep(5);
            begin();
            Thread.sleep((long) (Double.parseDouble(text("seconds")) * 1000));
            end();
            for (Thread worker : workers) worker.join();
            producer.shutdown();
        }

        void sendLoop(DefaultMQProducer producer, int batch, AtomicLong warm) {
            long[] spans = new long[1 << 20];
            int size = 0;
            while (!over) {
                long before = System.nanoTime();
                boolean counted = counting;
                try {
                    SendResult result;
                    if (batch == 1) {
                        result = producer.send(message());
                    } else {
                        Collection<Message> all = new ArrayList<>(batch);
                        for (int i = 0; i < batch; i++) all.add(message());
                        result = producer.send(all);
                    }
                    if (result.getSendStatus() != SendStatus.SEND_OK) note(new Exception(result.getSendStatus().name()));
                    else if (counting) {
                        messages.addAndGet(batch);
                        if (counted && size < spans.length) spans[size++] = System.nanoTime() - before;
                    }
                } catch (Exception error) {
                    note(error);
                }
                warm.addAndGet(-batch);
            }
            latencies.add(Arrays.copyOf(spans, size));
        }

        void async() throws Exception {
            DefaultMQProducer producer = producer();
            AtomicLong warm = new AtomicLong(number("warmup", 0));
            Semaphore window = new Semaphore(number("inflight", 256));
            Thread worker = new Thread(() -> {
                while (!over) {
                    window.acquireUninterruptibly();
                    try {
                        producer.send(message(), new SendCallback() {
                            @Override
                            public void onSuccess(SendResult result) {
                                window.release();
                                warm.decrementAndGet();
                                if (counting) messages.incrementAndGet();
                            }

                            @Override
                            public void onException(Throwable error) {
                                window.release();
                                warm.decrementAndGet();
                                note(error);
                            }
                        });
                    } catch (Exception error) {
                        window.release();
                        note(error);
                    }
                }
            });
            worker.start();
            while (warm.get() > 0) Thread.sleep(5);
            begin();
            Thread.sleep((long) (Double.parseDouble(text("seconds")) * 1000));
            end();
            worker.join();
            producer.shutdown();
        }

        void push() throws Exception {
            int threads = number("threads", 20);
            long expect = number("expect", 0);
            CountDownLatch done = new CountDownLatch(1);
            DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench_push_" + number + "_" + System.nanoTime());
            consumer.setNamesrvAddr(text("ns"));
            consumer.setInstanceName("push" + number);
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.setConsumeThreadMax(threads);
            consumer.setConsumeThreadMin(threads);
            consumer.setConsumeMessageBatchMaxSize(number("batch", 1));
            consumer.subscribe(text("topic"), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
                if (messages.addAndGet(list.size()) >= expect) done.countDown();
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            begin();
            consumer.start();
            if (!done.await(120, TimeUnit.SECONDS)) note(new Exception("only " + messages.get() + " arrived"));
            end();
            consumer.shutdown();
        }

        void pull() throws Exception {
            int threads = number("threads", 1);
            DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("bench_pull_" + number);
            consumer.setNamesrvAddr(text("ns"));
            consumer.setInstanceName("pull" + number);
            consumer.start();
            List<MessageQueue> queues = new ArrayList<>(consumer.fetchSubscribeMessageQueues(text("topic")));
            Collections.sort(queues);
            List<Thread> workers = new ArrayList<>();
            begin();
            for (int t = 0; t < threads; t++) {
                int first = t;
                Thread worker = new Thread(() -> {
                    for (int q = first; q < queues.size(); q += threads) pullQueue(consumer, queues.get(q));
                });
                worker.start();
                workers.add(worker);
            }
            for (Thread worker : workers) worker.join();
            end();
            consumer.shutdown();
            if (messages.get() < number("expect", 0)) note(new Exception("only " + messages.get() + " pulled"));
        }

        void pullQueue(DefaultMQPullConsumer consumer, MessageQueue queue) {
            long offset = 0;
            long[] spans = new long[1 << 20];
            int size = 0;
            try {
                while (true) {
                    long before = System.nanoTime();
                    PullResult result = consumer.pull(queue, "*", offset, 32);
                    if (size < spans.length) spans[size++] = System.nanoTime() - before;
                    List<MessageExt> found = result.getMsgFoundList();
                    if (found == null || found.isEmpty()) break;
                    messages.addAndGet(found.size());
                    offset = result.getNextBeginOffset();
                }
            } catch (Exception error) {
                note(error);
            }
            latencies.add(Arrays.copyOf(spans, size));
        }

        String json() {
            int total = 0;
            for (long[] part : latencies) total += part.length;
            long[] all = new long[total];
            int at = 0;
            for (long[] part : latencies) {
                System.arraycopy(part, 0, all, at, part.length);
                at += part.length;
            }
            Arrays.sort(all);
            String error = firstError.get().replaceAll("[\"\\\\\\p{Cntrl}]", " ");
            return String.format(
                "{\"messages\":%d,\"seconds\":%.6f,\"p50_us\":%d,\"p99_us\":%d,\"p999_us\":%d,\"errors\":%d,"
                    + "\"first_error\":\"%s\",\"cpu_s\":%.3f}",
                messages.get(), (ended - started) / 1e9, percentile(all, 0.5), percentile(all, 0.99),
                percentile(all, 0.999), errors.get(), error.substring(0, Math.min(300, error.length())), cpu);
        }

        static long percentile(long[] sorted, double share) {
            return sorted.length == 0 ? 0 : sorted[(int) (sorted.length * share)] / 1000;
        }
    }
}
