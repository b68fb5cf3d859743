import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.annotation.CFNotNull;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.SerializeType;
import org.apache.rocketmq.remoting.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.PullMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;
import org.apache.rocketmq.remoting.protocol.header.SendMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.UnregisterClientRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.GetRouteInfoRequestHeader;

/** Codes, frames and the extension fields of every header class. */
final class CaptureWire {
    private final Golden golden;
    private final List<Object> frames = new ArrayList<>();

    CaptureWire(Golden golden) {
        this.golden = golden;
    }

    void run() throws Exception {
        codes();
        frames();
        headers();
    }

    private static Map<Object, Object> constants(Class<?> type) throws Exception {
        TreeMap<Integer, List<String>> byCode = new TreeMap<>();
        for (Field field : type.getFields()) {
            if (Modifier.isStatic(field.getModifiers()) && field.getType() == int.class) {
                byCode.computeIfAbsent(field.getInt(null), code -> new ArrayList<>()).add(field.getName());
            }
        }
        Map<Object, Object> found = new LinkedHashMap<>();
        byCode.forEach((code, names) -> names.forEach(name -> found.put(name, code)));
        return found;
    }

    private void codes() throws Exception {
        Map<String, Object> languages = new LinkedHashMap<>();
        for (LanguageCode code : LanguageCode.values()) {
            languages.put(code.name(), (int) code.getCode());
        }
        Map<String, Object> versions = new LinkedHashMap<>();
        for (MQVersion.Version version : MQVersion.Version.values()) {
            if (!version.name().endsWith("SNAPSHOT")) {
                versions.put(version.name(), version.ordinal());
            }
        }
        golden.json("codes/cases.json", Golden.of("currentVersion", MQVersion.CURRENT_VERSION,
            "requestCodes", constants(RequestCode.class), "responseCodes", constants(ResponseCode.class),
            "languages", languages, "versions", versions));
    }

    private void frames() throws Exception {
        SendMessageRequestHeaderV2 send = new SendMessageRequestHeaderV2();
        send.setA("pg");
        send.setB("TopicTest");
        send.setC("TBW102");
        send.setD(4);
        send.setE(3);
        send.setF(0);
        send.setG(1700000000000L);
        send.setH(0);
        send.setI("TAGS\1TagA\2KEYS\1ключ\2");
        send.setJ(0);
        send.setK(false);
        send.setM(false);
        send.setBrokerName("broker-a");
        frame("send_v2", request(310, send), "body");
        frame("send_v2_no_body", request(310, send), null);

        SendMessageResponseHeader sent = new SendMessageResponseHeader();
        sent.setMsgId("7F00000100002A9F0000000000001000");
        sent.setQueueId(3);
        sent.setQueueOffset(12L);
        sent.setTransactionId("7F000001000018B4AAC2000000000000");
        RemotingCommand ok = RemotingCommand.createResponseCommandWithHeader(0, sent);
        ok.addExtField("MSG_REGION", "DefaultRegion");
        ok.addExtField("TRACE_ON", "true");
        frame("send_response", ok, null);

        PullMessageRequestHeader pull = new PullMessageRequestHeader();
        pull.setConsumerGroup("cg");
        pull.setTopic("TopicTest");
        pull.setQueueId(1);
        pull.setQueueOffset(42L);
        pull.setMaxMsgNums(32);
        pull.setSysFlag(3);
        pull.setCommitOffset(40L);
        pull.setSuspendTimeoutMillis(15000L);
        pull.setSubscription("TagA || 标签");
        pull.setSubVersion(1700000000001L);
        pull.setExpressionType("TAG");
        frame("pull", request(11, pull), null);

        PullMessageResponseHeader pulled = new PullMessageResponseHeader();
        pulled.setSuggestWhichBrokerId(0L);
        pulled.setNextBeginOffset(43L);
        pulled.setMinOffset(0L);
        pulled.setMaxOffset(43L);
        RemotingCommand found = RemotingCommand.createResponseCommandWithHeader(0, pulled);
        found.setRemark("FOUND");
        frame("pull_response", found, "records");

        GetRouteInfoRequestHeader route = new GetRouteInfoRequestHeader();
        route.setTopic("TopicTest");
        frame("route", request(105, route), null);

        RemotingCommand refused = RemotingCommand.createResponseCommand(17, "topic[\"ü\"] not exist\nSee <url>\t😀");
        frame("error_response", refused, null);

        UnregisterClientRequestHeader leave = new UnregisterClientRequestHeader();
        leave.setClientID("10.0.0.1@1");
        leave.setConsumerGroup("cg");
        RemotingCommand oneway = request(35, leave);
        oneway.markOnewayRPC();
        oneway.setLanguage(LanguageCode.PYTHON);
        frame("oneway_from_python", oneway, null);
        golden.json("frame/cases.json", frames);
    }

    private static RemotingCommand request(int code, CommandCustomHeader header) {
        return RemotingCommand.createRequestCommand(code, header);
    }

    /** The frame in both forms; `fast` is how Netty's encoder writes it, `plain` is RemotingCommand.encode. */
    private void frame(String name, RemotingCommand command, String body) {
        byte[] bytes = body == null ? null : body.getBytes(StandardCharsets.UTF_8);
        command.setOpaque(7);
        command.setBody(bytes);
        for (SerializeType type : SerializeType.values()) {
            command.setSerializeTypeCurrentRPC(type);
            ByteBuf fast = Unpooled.buffer();
            command.fastEncodeHeader(fast);
            if (bytes != null) {
                fast.writeBytes(bytes);
            }
            byte[] fastBytes = new byte[fast.readableBytes()];
            fast.readBytes(fastBytes);
            String plain = Golden.hex(Golden.bytes(command.encode()));
            frames.add(Golden.of("name", name, "type", type.name(), "code", command.getCode(), "opaque", command.getOpaque(),
                "flag", command.getFlag(), "version", command.getVersion(), "language", command.getLanguage().name(),
                "remark", command.getRemark(), "ext", command.getExtFields() == null ? null : new TreeMap<>(command.getExtFields()),
                "body", body, "plain", plain, "fast", Golden.hex(fastBytes)));
        }
    }

    private void headers() throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        Path jar = Path.of(new URI(CommandCustomHeader.class.getProtectionDomain().getCodeSource().getLocation().toString()));
        TreeSet<String> names = new TreeSet<>();
        try (ZipFile zip = new ZipFile(jar.toFile())) {
            for (ZipEntry entry : java.util.Collections.list(zip.entries())) {
                if (entry.getName().contains("/protocol/header/") && entry.getName().endsWith(".class")) {
                    names.add(entry.getName().replace('/', '.').replaceAll("\\.class$", ""));
                }
            }
        }
        for (String name : names) {
            Class<?> type = Class.forName(name);
            if (CommandCustomHeader.class.isAssignableFrom(type) && !Modifier.isAbstract(type.getModifiers())) {
                found.put(type.getSimpleName(), header(type));
            }
        }
        golden.json("headers/cases.json", found);
    }

    private static Object header(Class<?> type) throws Exception {
        CommandCustomHeader header = (CommandCustomHeader) type.getDeclaredConstructor().newInstance();
        Map<String, Object> defaults = ext(header);
        Map<String, Object> fields = new LinkedHashMap<>();
        Map<String, Object> inherited = new LinkedHashMap<>();
        for (Class<?> owner = type; owner != Object.class; owner = owner.getSuperclass()) {
            for (Field field : owner.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers()) || field.isSynthetic()) {
                    continue;
                }
                field.setAccessible(true);
                String required = field.isAnnotationPresent(CFNotNull.class) ? "!" : "";
                (owner == type ? fields : inherited).put(field.getName(), field.getType().getSimpleName() + required);
                Object value = sample(field.getType(), field.getName(), fields.size() + inherited.size());
                if (value != null) {
                    field.set(header, value);
                }
            }
        }
        return Golden.of("package", type.getPackageName(), "fields", fields, "inherited", inherited, "defaults", defaults, "ext", ext(header));
    }

    private static Map<String, Object> ext(CommandCustomHeader header) {
        RemotingCommand command = RemotingCommand.createRequestCommand(0, header);
        command.makeCustomHeaderToNet();
        if (command.getExtFields() == null) {
            return null;
        }
        Map<String, Object> found = new TreeMap<>(command.getExtFields());
        String now = Long.toString(System.currentTimeMillis()).substring(0, 6);
        found.replaceAll((name, value) -> ((String) value).length() == 13 && ((String) value).startsWith(now) ? "now" : value);
        return found;
    }

    private static Object sample(Class<?> type, String name, int index) {
        if (type == String.class) {
            return name + "-" + index;
        } else if (type == int.class || type == Integer.class) {
            return 100 + index;
        } else if (type == long.class || type == Long.class) {
            return 1700000000000L + index;
        } else if (type == boolean.class || type == Boolean.class) {
            return true;
        } else if (type == double.class || type == Double.class) {
            return index + 0.5;
        } else if (type.isEnum()) {
            return type.getEnumConstants()[0];
        }
        return null;
    }
}
