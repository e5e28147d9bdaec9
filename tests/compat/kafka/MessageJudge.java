import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Locale;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/**
 * The classes that Apache Kafka generates from its tables, as judge of our messages.
 *
 * <p>One JSON object per line on standard input, {@code {"class": ..., "version": ..., "data": base64}}. The answer is a
 * line with {@code "json"} (the text that Kafka's converter makes, of record data only the size), {@code "left"} (bytes
 * behind the message) and {@code "written"} (base64 of what Kafka writes for it, or the {@code "refusal"} to write it);
 * or a line with the {@code "error"} of reading. With {@code "json"} in place of {@code "data"}, the message is read from
 * that instead.
 *
 * <p>{@code MessageJudge catalogue}: a line per API ({@code "key"}, {@code "request"}, {@code "response"}, and for each
 * version up to one behind the last the versions of both headers; only {@code "key"} if it was removed), then a line per
 * record of the metadata log and of the coordinators ({@code "family"}, {@code "type"}, {@code "key"}, {@code "value"}).
 */
public class MessageJudge {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        if (args.length == 1 && args[0].equals("catalogue")) {
            printCatalogue(out);
        }
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(judge(JSON.readTree(line))));
        }
        out.flush();
    }

    private static ObjectNode judge(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        short version = question.get("version").shortValue();
        try {
            Class<?> type = Class.forName(question.get("class").asText());
            Class<?> converter = Class.forName(type.getName() + "JsonConverter");
            Message message;
            if (question.has("json")) {
                Method read = converter.getMethod("read", JsonNode.class, short.class);
                message = (Message) read.invoke(null, JSON.readTree(question.get("json").asText()), version);
            } else {
                ByteBuffer data = ByteBuffer.wrap(Base64.getDecoder().decode(question.get("data").asText()));
                message = (Message) type.getConstructor().newInstance();
                message.read(new ByteBufferAccessor(data), version);
                answer.put("left", data.remaining());
            }
            Method write = converter.getMethod("write", type, short.class, boolean.class);
            answer.put("json", write.invoke(null, message, version, false).toString());
            write(message, version, answer);
        } catch (InvocationTargetException error) {
            return answer.put("error", error.getCause().toString());
        } catch (ReflectiveOperationException | IOException error) {
            throw new IllegalArgumentException(error);
        } catch (RuntimeException error) {
            return answer.put("error", error.toString());
        }
        return answer;
    }

    private static void write(Message message, short version, ObjectNode answer) {
        try {
            ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
            answer.put("written", Base64.getEncoder().encodeToString(MessageUtil.byteBufferToArray(written)));
        } catch (RuntimeException error) {
            answer.put("refusal", error.toString());
        }
    }

    private static void printCatalogue(PrintStream out) throws IOException {
        for (ApiMessageType api : ApiMessageType.values()) {
            ObjectNode line = JSON.createObjectNode().put("key", api.apiKey());
            if (api.lowestSupportedVersion() > api.highestSupportedVersion(true)) {
                out.println(JSON.writeValueAsString(line)); // removed, and no class is left
                continue;
            }
            line.put("request", api.newRequest().getClass().getSimpleName());
            line.put("response", api.newResponse().getClass().getSimpleName());
            line.put("lowest", api.lowestSupportedVersion()).put("highest", api.highestSupportedVersion(true));
            line.put("unstable", api.highestSupportedVersion(true) != api.highestSupportedVersion(false));
            ArrayNode listeners = line.putArray("listeners");
            api.listeners().forEach(listener -> listeners.add(listener.toString().toLowerCase(Locale.ROOT)));
            ArrayNode requestHeaders = line.putArray("requestHeaders");
            ArrayNode responseHeaders = line.putArray("responseHeaders");
            for (short version = 0; version <= api.highestSupportedVersion(true) + 1; version++) {
                requestHeaders.add(api.requestHeaderVersion(version));
                responseHeaders.add(api.responseHeaderVersion(version));
            }
            out.println(JSON.writeValueAsString(line));
        }
        for (MetadataRecordType type : MetadataRecordType.values()) {
            printRecord(out, "metadata", type.id(), null, type.newMetadataRecord());
        }
        for (var type : org.apache.kafka.coordinator.group.generated.CoordinatorRecordType.values()) {
            printRecord(out, "group", type.id(), type.newRecordKey(), type.newRecordValue());
        }
        for (var type : org.apache.kafka.coordinator.share.generated.CoordinatorRecordType.values()) {
            printRecord(out, "share", type.id(), type.newRecordKey(), type.newRecordValue());
        }
        for (var type : org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordType.values()) {
            printRecord(out, "transaction", type.id(), type.newRecordKey(), type.newRecordValue());
        }
    }

    private static void printRecord(PrintStream out, String family, short type, Message key, Message value)
            throws IOException {
        ObjectNode line = JSON.createObjectNode().put("family", family).put("type", type);
        line.put("key", key == null ? null : key.getClass().getSimpleName());
        line.put("value", value.getClass().getSimpleName());
        out.println(JSON.writeValueAsString(line));
    }
}
