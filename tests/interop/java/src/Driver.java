import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/**
 * A Java client that the tests drive: one command per line on stdin, one JSON line per command on stdout.
 *
 * <p>A command is words separated by tabs: its name, then key=value with URL-encoded values. Started
 * producers and consumers are kept under the name the command gives and found again by it.
 */
public final class Driver {
    /** The arguments of one command. */
    static final class Arguments {
        private final Map<String, String> values = new LinkedHashMap<>();

        Arguments(String[] words) {
            for (int i = 1; i < words.length; i++) {
                int equals = words[i].indexOf('=');
                String value = words[i].substring(equals + 1);
                values.put(words[i].substring(0, equals), URLDecoder.decode(value, StandardCharsets.UTF_8));
            }
        }

        String text(String key) {
            String value = values.get(key);
            if (value == null) {
                throw new IllegalArgumentException("argument " + key + " is missing");
            }
            return value;
        }

        String text(String key, String otherwise) {
            return values.getOrDefault(key, otherwise);
        }

        int number(String key, int otherwise) {
            return values.containsKey(key) ? Integer.parseInt(values.get(key)) : otherwise;
        }

        long big(String key, long otherwise) {
            return values.containsKey(key) ? Long.parseLong(values.get(key)) : otherwise;
        }

        boolean has(String key) {
            return values.containsKey(key);
        }

        /** Arguments whose key starts with the prefix, without it. */
        Map<String, String> below(String prefix) {
            Map<String, String> found = new LinkedHashMap<>();
            values.forEach((key, value) -> {
                if (key.startsWith(prefix)) {
                    found.put(key.substring(prefix.length()), value);
                }
            });
            return found;
        }
    }

    private Driver() {
    }

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // what libraries print must not mix with the answers
        Producers producers = new Producers();
        Timers timers = new Timers(producers);
        Consumers consumers = new Consumers();
        Semantics semantics = new Semantics(producers);
        Filters filters = new Filters();
        Admin admin = new Admin(producers);
        Transactions transactions = new Transactions(producers);
        answers.println("{\"ready\":true}");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            Object answer;
            try {
                Arguments arguments = new Arguments(words);
                answer = producers.run(words[0], arguments);
                answer = answer != null ? answer : timers.run(words[0], arguments);
                answer = answer != null ? answer : consumers.run(words[0], arguments);
                answer = answer != null ? answer : semantics.run(words[0], arguments);
                answer = answer != null ? answer : filters.run(words[0], arguments);
                answer = answer != null ? answer : admin.run(words[0], arguments);
                answer = answer != null ? answer : since5("Pop", words[0], arguments);
                answer = answer != null ? answer : transactions.run(words[0], arguments);
                if (answer == null) {
                    throw new IllegalArgumentException("unknown command " + words[0]);
                }
            } catch (Throwable failure) {
                failure.printStackTrace();
                answer = failed(failure);
            }
            answers.println(Json.write(answer));
            answers.flush();
        }
        System.exit(0); // the test ended; client threads must not keep the process
    }

    /** A command of a class that is only compiled against 5.x (src55); null when it is not there. */
    private static Object since5(String name, String command, Arguments arguments) throws Throwable {
        try {
            return Class.forName(name).getDeclaredMethod("run", String.class, Arguments.class)
                    .invoke(null, command, arguments);
        } catch (ClassNotFoundException absent) {
            return null;
        } catch (java.lang.reflect.InvocationTargetException failure) {
            throw failure.getCause();
        }
    }

    static Map<String, Object> failed(Throwable failure) {
        Map<String, Object> shape = new LinkedHashMap<>();
        Throwable root = failure;
        while (root.getCause() != null && root.getCause() != root) {
            root = root.getCause();
        }
        shape.put("error", failure.getClass().getSimpleName());
        shape.put("text", String.valueOf(failure.getMessage()));
        shape.put("root", root.getClass().getSimpleName());
        shape.put("rootText", String.valueOf(root.getMessage()));
        Throwable coded = root instanceof MQBrokerException ? root : failure;
        if (coded instanceof MQBrokerException) {
            shape.put("code", ((MQBrokerException) coded).getResponseCode());
            shape.put("remark", ((MQBrokerException) coded).getErrorMessage());
        } else if (coded instanceof MQClientException) {
            shape.put("code", ((MQClientException) coded).getResponseCode());
        }
        return shape;
    }
}
