import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;

/**
 * How a client gets into closed servers: arguments accessKey and secretKey have Apache's hook sign its requests, tls
 * names the property file (tls.config.file) of what it trusts and shows.
 *
 * <p>A client reads that file when it starts; a key the file leaves out keeps the value of the file before.
 */
final class Doors {
    private Doors() {
    }

    /** Apache's hook for the keys, null without. The class is in another jar for 4.9 (rocketmq-acl) than for 5.x. */
    static RPCHook hook(Driver.Arguments arguments) throws Exception {
        if (!arguments.has("accessKey")) {
            return null;
        }
        Class<?> keys = Class.forName("org.apache.rocketmq.acl.common.SessionCredentials");
        Object pair = arguments.has("securityToken")
                ? keys.getConstructor(String.class, String.class, String.class).newInstance(
                        arguments.text("accessKey"), arguments.text("secretKey"), arguments.text("securityToken"))
                : keys.getConstructor(String.class, String.class).newInstance(
                        arguments.text("accessKey"), arguments.text("secretKey"));
        return (RPCHook) Class.forName("org.apache.rocketmq.acl.common.AclClientRPCHook")
                .getConstructor(keys).newInstance(pair);
    }

    /** Whether the arguments ask for TLS; its file is the one the next client reads. */
    static boolean tls(Driver.Arguments arguments) {
        if (arguments.has("tls")) {
            TlsSystemConfig.tlsConfigFile = arguments.text("tls");
        }
        return arguments.has("tls");
    }

    static <T extends ClientConfig> T open(T client, Driver.Arguments arguments) {
        client.setUseTLS(tls(arguments));
        return client;
    }

    static DefaultMQPushConsumer push(Driver.Arguments arguments) throws Exception {
        return open(new DefaultMQPushConsumer(
                arguments.text("group"), hook(arguments), new AllocateMessageQueueAveragely()), arguments);
    }
}
