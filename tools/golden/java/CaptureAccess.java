import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.embedded.EmbeddedChannel;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.stream.Collectors;
import org.apache.rocketmq.acl.common.AclSigner;
import org.apache.rocketmq.auth.authentication.builder.DefaultAuthenticationContextBuilder;
import org.apache.rocketmq.auth.authentication.context.DefaultAuthenticationContext;
import org.apache.rocketmq.auth.authentication.model.User;
import org.apache.rocketmq.auth.authorization.builder.DefaultAuthorizationContextBuilder;
import org.apache.rocketmq.auth.authorization.chain.AclAuthorizationHandler;
import org.apache.rocketmq.auth.authorization.context.DefaultAuthorizationContext;
import org.apache.rocketmq.auth.authorization.enums.Decision;
import org.apache.rocketmq.auth.authorization.enums.PolicyType;
import org.apache.rocketmq.auth.authorization.exception.AuthorizationException;
import org.apache.rocketmq.auth.authorization.model.Acl;
import org.apache.rocketmq.auth.authorization.model.Environment;
import org.apache.rocketmq.auth.authorization.model.Policy;
import org.apache.rocketmq.auth.authorization.model.PolicyEntry;
import org.apache.rocketmq.auth.authorization.model.Resource;
import org.apache.rocketmq.auth.authorization.provider.AuthorizationMetadataProvider;
import org.apache.rocketmq.auth.config.AuthConfig;
import org.apache.rocketmq.common.action.Action;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.RequestHeaderRegistry;

/** Which rights requests need, what policies decide, and what is signed: by Apache's auth module. */
final class CaptureAccess {
    private static final String[] NAMES = {"a", "ab", "abc", "abcd", "b"};
    private static final String[] IPS = {"10.0.0.1", "10.1.0.1", "11.0.0.1"};
    private static final String[][] SOURCES = {{}, {}, {"10.0.0.1"}, {"10.0.0.0/8"}, {"10.1.0.0/16", "11.0.0.1"}};
    private final Golden golden;
    private final Random random = new Random(16);
    private final AuthConfig config = new AuthConfig();

    CaptureAccess(Golden golden) {
        this.golden = golden;
    }

    void run() throws Exception {
        config.setClusterName("DefaultCluster");
        RequestHeaderRegistry.getInstance().initialize();
        golden.json("access/cases.json", Golden.of("needs", needs(), "decisions", decisions(), "signatures", signatures()));
    }

    private Object needs() throws Exception {
        Map<String, Object> found = new TreeMap<>();
        for (Field field : RequestCode.class.getFields()) {
            int code = field.getInt(null);
            Class<? extends CommandCustomHeader> type = RequestHeaderRegistry.getInstance().getRequestHeader(code);
            if (type == null || type.getSimpleName().endsWith("ResponseHeader")) {
                continue;
            }
            HashMap<String, String> ext = ext(type);
            byte[] body = null;
            if (code == RequestCode.HEART_BEAT) {
                body = ("{\"clientID\":\"c\",\"consumerDataSet\":[{\"groupName\":\"g\",\"subscriptionDataSet\":[{\"topic\":\"t\"},{\"topic\":\"%RETRY%g\"}]}],\"producerDataSet\":[{\"groupName\":\"p\"}]}").getBytes(StandardCharsets.UTF_8);
            } else if (code == RequestCode.LOCK_BATCH_MQ || code == RequestCode.UNLOCK_BATCH_MQ) {
                body = "{\"clientId\":\"c\",\"consumerGroup\":\"g\",\"mqSet\":[{\"topic\":\"t\",\"brokerName\":\"b\",\"queueId\":0}]}".getBytes(StandardCharsets.UTF_8);
            }
            found.put(Integer.toString(code), Golden.of("ext", new TreeMap<>(ext), "body", body == null ? "" : new String(body, StandardCharsets.UTF_8), "needs", needed(code, ext, body)));
        }
        return found;
    }

    private Object needed(int code, HashMap<String, String> ext, byte[] body) throws Exception {
        RemotingCommand command = RemotingCommand.createRequestCommand(code, null);
        ext.put("AccessKey", "alice");
        command.setExtFields(ext);
        command.setBody(body);
        List<Object> found = new ArrayList<>();
        for (DefaultAuthorizationContext one : new DefaultAuthorizationContextBuilder(config).build(channel(), command)) {
            found.add(List.of(one.getResourceKey(), one.getActions().stream().map(Action::getName).collect(Collectors.joining(","))));
        }
        ext.remove("AccessKey");
        return found;
    }

    private static HashMap<String, String> ext(Class<? extends CommandCustomHeader> type) throws Exception {
        HashMap<String, String> found = new HashMap<>();
        for (Class<?> owner = type; owner != Object.class; owner = owner.getSuperclass()) {
            for (Field field : owner.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers()) || field.isSynthetic()) {
                    continue;
                }
                Class<?> kind = field.getType();
                found.put(field.getName(), field.getName().equals("topicFilterType") ? "SINGLE_TAG" : kind == String.class ? field.getName() + "-x" : kind == boolean.class || kind == Boolean.class ? "true" : "1");
            }
        }
        return found;
    }

    private static ChannelHandlerContext channel() {
        EmbeddedChannel channel = new EmbeddedChannel() {
            @Override
            protected SocketAddress remoteAddress0() {
                return new InetSocketAddress("10.0.0.7", 4711);
            }
        };
        return (ChannelHandlerContext) Proxy.newProxyInstance(CaptureAccess.class.getClassLoader(), new Class<?>[] {ChannelHandlerContext.class},
            (self, method, args) -> method.getName().equals("channel") ? channel : null);
    }

    private Object decisions() throws Exception {
        List<Object> found = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            Acl acl = Acl.of(User.of("alice"), new ArrayList<>());
            List<Object> policies = new ArrayList<>();
            for (PolicyType type : PolicyType.values()) {
                Map<String, PolicyEntry> entries = new LinkedHashMap<>();
                for (int n = random.nextInt(6); n > 0; n--) {
                    PolicyEntry entry = entry();
                    entries.put(entry.toResourceStr(), entry);
                }
                if (entries.isEmpty()) {
                    continue;
                }
                acl.getPolicies().add(Policy.of(type, new ArrayList<>(entries.values())));
                policies.add(Golden.of("type", type.getName(), "entries", entries.values().stream().map(CaptureAccess::shown).collect(Collectors.toList())));
            }
            String resource = (random.nextBoolean() ? "Topic:" : "Group:") + NAMES[random.nextInt(NAMES.length)];
            List<Action> actions = actions(1 + random.nextInt(2), false);
            String ip = IPS[random.nextInt(IPS.length)];
            found.add(Golden.of("policies", policies, "resource", resource, "actions", names(actions), "ip", ip, "refusal", refusal(acl, resource, actions, ip)));
        }
        return found;
    }

    private static String refusal(Acl acl, String resource, List<Action> actions, String ip) throws Exception {
        AclAuthorizationHandler handler = new AclAuthorizationHandler(new AuthConfig());
        Field provider = AclAuthorizationHandler.class.getDeclaredField("authorizationMetadataProvider");
        provider.setAccessible(true);
        provider.set(handler, Proxy.newProxyInstance(CaptureAccess.class.getClassLoader(), new Class<?>[] {AuthorizationMetadataProvider.class},
            (self, method, args) -> CompletableFuture.completedFuture(acl)));
        try {
            handler.handle(DefaultAuthorizationContext.of(acl.getSubject(), Resource.of(resource), actions, ip), null).join();
            return "";
        } catch (CompletionException error) {
            return ((AuthorizationException) error.getCause()).getMessage();
        }
    }

    private PolicyEntry entry() {
        String[] kinds = {"Topic:", "Group:"};
        String[] ends = {"", "*"};
        int shape = random.nextInt(8);
        String key = shape == 0 ? "*" : kinds[random.nextInt(2)] + (shape == 1 ? "*" : NAMES[random.nextInt(NAMES.length)] + ends[random.nextInt(2)]);
        String[] sources = SOURCES[random.nextInt(SOURCES.length)];
        return PolicyEntry.of(Resource.of(key), actions(1 + random.nextInt(3), true), Environment.of(List.of(sources)), random.nextBoolean() ? Decision.ALLOW : Decision.DENY);
    }

    private List<Action> actions(int count, boolean all) {
        List<Action> found = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Action action = Action.values()[1 + random.nextInt(Action.values().length - 1)];
            if (action != Action.ANY && (all || action != Action.ALL) && !found.contains(action)) {
                found.add(action);
            }
        }
        return found.isEmpty() ? List.of(Action.PUB) : found;
    }

    private static String names(List<Action> actions) {
        return actions.stream().map(Action::getName).collect(Collectors.joining(","));
    }

    private static Object shown(PolicyEntry entry) {
        List<String> sources = entry.getEnvironment() == null ? List.of() : entry.getEnvironment().getSourceIps();
        return Golden.of("resource", entry.toResourceStr(), "actions", names(entry.getActions()), "sourceIps", String.join(",", sources), "decision", entry.getDecision().getName());
    }

    private Object signatures() {
        List<Object> found = new ArrayList<>();
        for (int version : new int[] {0, 399, 400, 493, 513}) {
            for (String value : new String[] {"true", "", "\u00e4\u8ba2\u5355\ud83d\ude00"}) {
                RemotingCommand command = RemotingCommand.createRequestCommand(12, null);
                command.setVersion(version);
                HashMap<String, String> ext = new HashMap<>(Map.of("topic", "T", "b", value, "Zeta", "1", "_UNIQUE_KEY_QUERY", "true", "AccessKey", "alice", "Signature", "old"));
                command.setExtFields(ext);
                String body = value.isEmpty() ? "" : "a body " + value;
                command.setBody(body.isEmpty() ? null : body.getBytes(StandardCharsets.UTF_8));
                DefaultAuthenticationContext context = new DefaultAuthenticationContextBuilder().build(channel(), command);
                found.add(Golden.of("version", version, "ext", new TreeMap<>(ext), "body", body, "secret", "a s\u00e9cret", "signature", AclSigner.calSignature(context.getContent(), "a s\u00e9cret")));
            }
        }
        return found;
    }
}
