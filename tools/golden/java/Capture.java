import java.nio.file.Path;

/** Captures bytes from Apache's own code: java Capture <output folder> <scratch folder>. */
public final class Capture {
    public static void main(String[] args) throws Exception {
        // As BrokerStartup and NamesrvStartup do, before the first command is made.
        System.setProperty("rocketmq.remoting.version", Integer.toString(org.apache.rocketmq.common.MQVersion.CURRENT_VERSION));
        Golden golden = new Golden(Path.of(args[0]));
        new CaptureMessages(golden).run();
        new CaptureWire(golden).run();
        new CaptureText(golden).run();
        new CaptureSettings(golden).run();
        new CaptureBodies(golden).run();
        new CaptureAccess(golden).run();
        new CaptureStore(golden, Path.of(args[1])).run();
        System.exit(0); // Apache's thread pools would keep us here
    }
}
