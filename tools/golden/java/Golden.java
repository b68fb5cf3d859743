import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;

/** Writes what the capture programs find, one folder per format. */
final class Golden {
    private final Path root;

    Golden(Path root) {
        this.root = root;
    }

    /** A JSON object of alternating names and values, in that order. */
    static Map<String, Object> of(Object... pairs) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            found.put((String) pairs[i], pairs[i + 1]);
        }
        return found;
    }

    static String hex(byte[] data) {
        StringBuilder text = new StringBuilder();
        for (byte b : data) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return data;
    }

    void json(String name, Object value) throws Exception {
        String text = JSON.toJSONString(value, JSONWriter.Feature.PrettyFormat, JSONWriter.Feature.WriteNulls);
        raw(name, (text.replace("\t", " ") + "\n").getBytes(StandardCharsets.UTF_8));
    }

    void raw(String name, byte[] data) throws Exception {
        Path path = root.resolve(name);
        Files.createDirectories(path.getParent());
        Files.write(path, data);
    }
}
