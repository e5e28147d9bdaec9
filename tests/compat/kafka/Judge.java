import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.xerial.snappy.SnappyError;

/**
 * Apache Kafka's own classes as judge of our bytes. Java runs this file from source; it is never compiled to disk.
 *
 * <p>{@code Judge read}: paths on standard input, one per line. Every batch of every file is checked (ensureValid), its
 * records are decompressed and checked, and one JSON line per batch is printed; a file ends with a line that says how
 * many of its bytes were batches and, if Kafka refused something, the class and message of the exception.
 *
 * <p>{@code Judge write}: one JSON object per line on standard input, {@code {"path": ..., "batches": [...]}}, where a
 * batch is what {@code kafka_tools.py} describes. The file gets the bytes that Kafka's MemoryRecordsBuilder makes.
 *
 * <p>{@code Judge stamp}: {@code {"path": ..., "lastOffset": ..., "leaderEpoch": ..., "timestampType": ...,
 * "maxTimestamp": ...}} per line. What is given is set on every batch of the file, as a broker does on append.
 *
 * <p>{@code Judge compress} and {@code Judge decompress}: {@code {"codec": ..., "magic": ..., "data": ...}} per line. The
 * answer is a line with {@code "data"}, or with the innermost {@code "error"} of the codec.
 *
 * <p>Keys, values and data travel as base64, null stays null.
 */
public class Judge {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            switch (args[0]) {
                case "read" -> read(line, out);
                case "write" -> write(JSON.readTree(line));
                case "stamp" -> stamp(JSON.readTree(line));
                case "compress", "decompress" -> out.println(JSON.writeValueAsString(convert(args[0], JSON.readTree(line))));
                default -> throw new IllegalArgumentException("no verb " + args[0]);
            }
        }
        out.flush();
    }

    private static void read(String path, PrintStream out) throws IOException {
        ObjectNode end = JSON.createObjectNode().put("path", path);
        long position = 0;
        try (FileRecords records = FileRecords.open(new File(path), false)) {
            end.put("size", records.sizeInBytes());
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                out.println(JSON.writeValueAsString(describe(batch).put("path", path).put("position", position)));
                position += batch.sizeInBytes();
            }
        } catch (RuntimeException | SnappyError | OutOfMemoryError e) { // CorruptRecordException, InvalidRecordException, ...
            end.put("error", e.getClass().getSimpleName()).put("message", String.valueOf(e.getMessage()));
        }
        out.println(JSON.writeValueAsString(end.put("validBytes", position)));
    }

    private static ObjectNode describe(RecordBatch batch) {
        ObjectNode node = JSON.createObjectNode()
            .put("magic", batch.magic())
            .put("baseOffset", batch.baseOffset())
            .put("lastOffset", batch.lastOffset())
            .put("count", batch.countOrNull())
            .put("size", batch.sizeInBytes())
            .put("crc", batch.checksum())
            .put("compression", batch.compressionType().name)
            .put("timestampType", batch.timestampType().name)
            .put("maxTimestamp", batch.maxTimestamp())
            .put("producerId", batch.producerId())
            .put("producerEpoch", batch.producerEpoch())
            .put("baseSequence", batch.baseSequence())
            .put("lastSequence", batch.lastSequence())
            .put("partitionLeaderEpoch", batch.partitionLeaderEpoch())
            .put("isTransactional", batch.isTransactional())
            .put("isControl", batch.isControlBatch())
            .put("deleteHorizonMs", batch.deleteHorizonMs().isPresent() ? (Long) batch.deleteHorizonMs().getAsLong() : null);
        ArrayNode records = node.putArray("records");
        for (Record record : batch) {
            record.ensureValid();
            ObjectNode item = records.addObject()
                .put("offset", record.offset())
                .put("timestamp", record.timestamp())
                .put("sequence", record.sequence())
                .put("key", base64(record.key()))
                .put("value", base64(record.value()));
            ArrayNode headers = item.putArray("headers");
            for (Header header : record.headers())
                headers.addArray().add(header.key()).add(base64(header.value() == null ? null : ByteBuffer.wrap(header.value())));
            if (batch.isControlBatch())
                item.put("controlType", ControlRecordType.parse(record.key()).name());
        }
        return node;
    }

    private static void write(JsonNode file) throws IOException {
        try (OutputStream out = Files.newOutputStream(Path.of(file.get("path").asText()))) {
            for (JsonNode batch : file.get("batches")) {
                ByteBuffer bytes = build(batch);
                out.write(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
            }
        }
    }

    private static ByteBuffer build(JsonNode spec) {
        byte magic = (byte) number(spec, "magic", 2);
        long baseOffset = number(spec, "baseOffset", 0);
        long producerId = number(spec, "producerId", RecordBatch.NO_PRODUCER_ID);
        short producerEpoch = (short) number(spec, "producerEpoch", RecordBatch.NO_PRODUCER_EPOCH);
        int baseSequence = (int) number(spec, "baseSequence", RecordBatch.NO_SEQUENCE);
        int leaderEpoch = (int) number(spec, "partitionLeaderEpoch", RecordBatch.NO_PARTITION_LEADER_EPOCH);
        boolean transactional = spec.path("isTransactional").asBoolean(false);
        boolean control = spec.path("isControl").asBoolean(false);
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
            : TimestampType.forName(spec.path("timestampType").asText("CreateTime"));
        if (spec.get("records").isEmpty()) { // what compaction leaves of a batch whose sequence numbers must be kept
            ByteBuffer empty = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
            DefaultRecordBatch.writeEmptyHeader(empty, magic, producerId, producerEpoch, baseSequence, baseOffset,
                number(spec, "lastOffset", baseOffset), leaderEpoch, type,
                number(spec, "maxTimestamp", RecordBatch.NO_TIMESTAMP), transactional, control);
            return empty.flip();
        }
        var builder = new MemoryRecordsBuilder(new ByteBufferOutputStream(1024), magic, compression(spec), type, baseOffset,
            number(spec, "logAppendTime", RecordBatch.NO_TIMESTAMP), producerId, producerEpoch, baseSequence, transactional,
            control, leaderEpoch, Integer.MAX_VALUE, number(spec, "deleteHorizonMs", RecordBatch.NO_TIMESTAMP));
        long offset = baseOffset;
        for (JsonNode record : spec.get("records")) {
            offset = number(record, "offset", offset);
            long timestamp = number(record, "timestamp", RecordBatch.NO_TIMESTAMP);
            if (control)
                appendControl(builder, timestamp, record);
            else
                builder.appendWithOffset(offset, timestamp, bytes(record.path("key")), bytes(record.path("value")), headers(record));
            offset++;
        }
        if (spec.hasNonNull("lastOffset"))
            builder.overrideLastOffset(spec.get("lastOffset").asLong());
        return builder.build().buffer();
    }

    private static void appendControl(MemoryRecordsBuilder builder, long timestamp, JsonNode record) {
        ControlRecordType type = ControlRecordType.valueOf(record.get("controlType").asText());
        if (type == ControlRecordType.COMMIT || type == ControlRecordType.ABORT)
            builder.appendEndTxnMarker(timestamp, new EndTransactionMarker(type, (int) number(record, "coordinatorEpoch", 0)));
        else
            builder.appendControlRecord(timestamp, type, ByteBuffer.wrap(bytes(record.path("value"))));
    }

    private static void stamp(JsonNode file) throws IOException {
        Path path = Path.of(file.get("path").asText());
        ByteBuffer buffer = ByteBuffer.wrap(Files.readAllBytes(path));
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
            if (file.hasNonNull("lastOffset"))
                batch.setLastOffset(file.get("lastOffset").asLong());
            if (file.hasNonNull("leaderEpoch"))
                batch.setPartitionLeaderEpoch(file.get("leaderEpoch").asInt());
            if (file.hasNonNull("timestampType"))
                batch.setMaxTimestamp(TimestampType.forName(file.get("timestampType").asText()), file.get("maxTimestamp").asLong());
        }
        Files.write(path, buffer.array());
    }

    private static ObjectNode convert(String verb, JsonNode spec) {
        Compression codec = Compression.of(CompressionType.forName(spec.get("codec").asText())).build();
        byte magic = (byte) spec.get("magic").asInt();
        byte[] data = bytes(spec.get("data"));
        try {
            ByteBuffer result = verb.equals("compress") ? compress(codec, magic, data) : decompress(codec, magic, data);
            return JSON.createObjectNode().put("data", base64(result));
        } catch (IOException | RuntimeException | SnappyError e) {
            Throwable innermost = e;
            while (innermost.getCause() != null)
                innermost = innermost.getCause();
            return JSON.createObjectNode().put("error", innermost.getClass().getSimpleName() + ": " + innermost.getMessage());
        }
    }

    private static ByteBuffer compress(Compression codec, byte magic, byte[] data) throws IOException {
        var buffer = new ByteBufferOutputStream(1024);
        try (OutputStream out = codec.wrapForOutput(buffer, magic)) {
            out.write(data);
        }
        return buffer.buffer().flip();
    }

    private static ByteBuffer decompress(Compression codec, byte magic, byte[] data) throws IOException {
        var plain = new ByteArrayOutputStream();
        try (InputStream in = codec.wrapForInput(ByteBuffer.wrap(data), magic, BufferSupplier.create())) {
            byte[] piece = new byte[16384];
            int emptyReads = 0;
            for (int size = in.read(piece, 0, piece.length); size != -1; size = in.read(piece, 0, piece.length)) {
                plain.write(piece, 0, size);
                if (size == 0 && ++emptyReads > 3)
                    throw new IOException("the stream gives nothing and does not end");
            }
        }
        return ByteBuffer.wrap(plain.toByteArray());
    }

    private static Compression compression(JsonNode spec) {
        CompressionType type = CompressionType.forName(spec.path("compression").asText("none"));
        if (!spec.hasNonNull("level"))
            return Compression.of(type).build();
        int level = spec.get("level").asInt();
        return switch (type) {
            case GZIP -> Compression.gzip().level(level).build();
            case LZ4 -> Compression.lz4().level(level).build();
            case ZSTD -> Compression.zstd().level(level).build();
            default -> throw new IllegalArgumentException(type.name + " has no levels");
        };
    }

    private static Header[] headers(JsonNode record) {
        ArrayNode items = record.withArray("/headers");
        Header[] headers = new Header[items.size()];
        for (int i = 0; i < headers.length; i++)
            headers[i] = new RecordHeader(items.get(i).get(0).asText(), bytes(items.get(i).get(1)));
        return headers;
    }

    private static long number(JsonNode node, String name, long otherwise) {
        return node.hasNonNull(name) ? node.get(name).asLong() : otherwise;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isTextual() ? Base64.getDecoder().decode(text.asText()) : null;
    }

    private static String base64(ByteBuffer buffer) {
        if (buffer == null)
            return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }
}
