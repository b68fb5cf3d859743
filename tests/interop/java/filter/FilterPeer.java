import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;
import org.apache.rocketmq.remoting.protocol.filter.FilterAPI;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;

/**
 * Apache's filters, asked by lines. Texts are hex of UTF-16, so that any of them fits on a line.
 *
 * sql EXPRESSION PROPERTIES...  ->  one letter per property string: T, F, N (null) or X (throws); or "E reason"
 * tag EXPRESSION                ->  hashes of the tags, sorted; or "E reason"
 * hash TEXT                     ->  String.hashCode
 * An empty line flushes the answers.
 */
public class FilterPeer {
    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        out.println("ready");
        out.flush();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.isEmpty()) {
                out.flush();
                continue;
            }
            String[] words = line.split(" ", -1);
            switch (words[0]) {
                case "sql":
                    out.println(sql(words));
                    break;
                case "tag":
                    out.println(tag(text(words[1])));
                    break;
                default:
                    out.println(text(words[1]).hashCode());
            }
        }
        out.flush();
    }

    private static String sql(String[] words) {
        Expression compiled;
        try {
            compiled = SelectorParser.parse(text(words[1]));
        } catch (Throwable e) {
            return "E " + (e.getMessage() + "").replaceAll("\\s+", " ");
        }
        StringBuilder answers = new StringBuilder();
        for (int i = 2; i < words.length; i++) {
            answers.append(evaluate(compiled, MessageDecoder.string2messageProperties(text(words[i]))));
        }
        return answers.toString();
    }

    private static char evaluate(Expression compiled, Map<String, String> properties) {
        try {
            Object answer = compiled.evaluate(new EvaluationContext() {
                public Object get(String name) {
                    return properties.get(name);
                }

                public Map<String, Object> keyValues() {
                    return null;
                }
            });
            return answer == null ? 'N' : answer.equals(Boolean.TRUE) ? 'T' : answer.equals(Boolean.FALSE) ? 'F' : '?';
        } catch (Throwable e) {
            return 'X';
        }
    }

    private static String tag(String expression) {
        try {
            SubscriptionData data = FilterAPI.buildSubscriptionData("T", expression);
            return data.getSubString().equals("*") ? "*" : new TreeSet<>(data.getCodeSet()).toString();
        } catch (Throwable e) {
            return "E " + e.getMessage();
        }
    }

    private static String text(String hex) {
        StringBuilder found = new StringBuilder(hex.length() / 4);
        for (int i = 0; i < hex.length(); i += 4) {
            found.append((char) Integer.parseInt(hex.substring(i, i + 4), 16));
        }
        return found.toString();
    }
}
