import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What a broker makes of header text that is not UTF-8: the bytes it stores, in both forms of a header. */
final class CaptureText {
    private static final int[] EDGES = {0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff};
    private static final String[] GBK = {"中文标签", "订单", "你好世界ABC", "属性=值", "龙 卷 风"};
    private final Golden golden;
    private final Map<String, Object> binary = new LinkedHashMap<>();
    private int refused;

    CaptureText(Golden golden) {
        this.golden = golden;
    }

    void run() throws Exception {
        for (int a : EDGES) {
            add((byte) a);
            for (int b : EDGES) {
                add((byte) a, (byte) b);
                if (a == 0xed || a == 0xe0 || a == 0xf0 || a == 0xf4) {
                    add((byte) a, (byte) b, (byte) 0x80);
                    add((byte) a, (byte) b, (byte) 0xbf, (byte) 0x80);
                    add((byte) a, (byte) b, (byte) 0x41);
                }
            }
        }
        for (String word : GBK) {
            add(word.getBytes("GBK"));
            add(word.getBytes(StandardCharsets.UTF_8));
        }
        golden.json("not_utf8/cases.json", Golden.of("binaryHeader", binary, "jsonHeadersRefused", refused));
    }

    private void add(byte... value) throws Exception {
        ByteBuffer head = ByteBuffer.allocate(21 + 7 + value.length);
        head.putShort((short) 310).put((byte) 1).putShort((short) 1).putInt(1).putInt(0).putInt(0).putInt(7 + value.length);
        head.putShort((short) 1).put((byte) 'i').putInt(value.length).put(value);
        binary.put(Golden.hex(value), Golden.hex(decoded(1, head.array())));
        ByteArrayOutputStream json = new ByteArrayOutputStream();
        json.write("{\"code\":310,\"extFields\":{\"i\":\"".getBytes(StandardCharsets.UTF_8));
        json.write(value);
        json.write("\"},\"flag\":0,\"opaque\":1}".getBytes(StandardCharsets.UTF_8));
        try {
            if (!new String(decoded(0, json.toByteArray())).equals(new String(decoded(1, head.array())))) {
                throw new AssertionError(Golden.hex(value));
            }
        } catch (com.alibaba.fastjson2.JSONException | com.alibaba.fastjson.JSONException error) {
            refused++;
        }
    }

    private static byte[] decoded(int type, byte[] head) throws Exception {
        ByteBuffer frame = ByteBuffer.allocate(4 + head.length);
        frame.putInt(type << 24 | head.length).put(head).flip();
        return RemotingCommand.decode(frame).getExtFields().get("i").getBytes(StandardCharsets.UTF_8);
    }
}
