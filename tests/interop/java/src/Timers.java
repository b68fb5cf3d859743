import java.lang.reflect.InvocationTargetException;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;

/** The commands timed and recall. Only the client of 5.x has the methods; 4.9 sets the properties itself. */
final class Timers {
    private final Producers producers;

    Timers(Producers producers) {
        this.producers = producers;
    }

    Object run(String command, Driver.Arguments arguments) throws Exception {
        switch (command) {
            case "timed":
                return send(producers.find(arguments.text("name")), arguments);
            case "recall":
                return recall(producers.find(arguments.text("name")), arguments);
            default:
                return null;
        }
    }

    private Object send(DefaultMQProducer producer, Driver.Arguments arguments) throws Exception {
        Message message = new Message(arguments.text("topic"), arguments.text("body", "later").getBytes());
        long value = arguments.big("value", 0);
        if (arguments.has("method")) {
            call(message, arguments.text("method"), new Class<?>[] {long.class}, value);
        } else {
            MessageAccessor.putProperty(message, arguments.text("setProperty"), arguments.text("value"));
        }
        SendResult result = producer.send(message);
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("msgId", result.getMsgId());
        answer.put("status", result.getSendStatus().name());
        try {
            answer.put("recallHandle", call(result, "getRecallHandle", new Class<?>[0]));
        } catch (NoSuchMethodException absent) {
            answer.put("recallHandle", null);
        }
        return answer;
    }

    private Object recall(DefaultMQProducer producer, Driver.Arguments arguments) throws Exception {
        Class<?>[] types = {String.class, String.class};
        Object id = call(producer, "recallMessage", types, arguments.text("topic"), arguments.text("handle"));
        return Collections.singletonMap("msgId", id);
    }

    private static Object call(Object target, String method, Class<?>[] types, Object... values) throws Exception {
        try {
            return target.getClass().getMethod(method, types).invoke(target, values);
        } catch (InvocationTargetException failure) {
            throw (Exception) failure.getCause();
        }
    }
}
