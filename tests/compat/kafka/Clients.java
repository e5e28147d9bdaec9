import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache Kafka's own producers and consumer, at work on a broker. Java runs this file from source.
 *
 * <p>{@code Clients <bootstrap servers> <topic>...}: writes to partition 0 of every topic, and obeys lines on standard input:
 *
 * <ul>
 *   <li>{@code begin}: rounds are written from now on; answered when the first one is
 *   <li>{@code finish}: the last round is ended, a transaction left open, and the number of rounds is the answer
 *   <li>{@code consume <topic> <isolation level>}: a line of JSON, of all records from the beginning to the end
 *   <li>{@code times <topic> <isolation level> <time>...}: the offsets of the first records that are not older, or -1
 * </ul>
 *
 * <p>A round is a batch of an idempotent producer and batches of two transactions, one of which is aborted. Every record
 * says in a header what is true of it: {@code committed <key> <timestamp>} or {@code aborted <key> <timestamp>}.
 */
public class Clients {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int KEYS = 40;
    private static final int BATCH = 8;

    private final String servers;
    private final List<String> topics;
    private final CountDownLatch begun = new CountDownLatch(1);
    private volatile boolean isLast = false;
    private volatile int written = 0;
    private volatile Exception failure = null;

    private Clients(String servers, List<String> topics) {
        this.servers = servers;
        this.topics = topics;
    }

    public static void main(String[] args) throws Exception {
        var clients = new Clients(args[0], Arrays.asList(args).subList(1, args.length));
        var writer = new Thread(clients::write);
        writer.setDaemon(true);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "begin" -> {
                    writer.start();
                    clients.begun.await();
                    out.println(clients.written);
                }
                case "finish" -> {
                    clients.isLast = true;
                    writer.join();
                    if (clients.failure != null) throw clients.failure;
                    out.println(clients.written);
                }
                case "consume" -> out.println(clients.consume(words[1], words[2]));
                case "times" -> out.println(clients.times(words));
                default -> throw new IllegalArgumentException(line);
            }
        }
        System.exit(0); // what is open stays so
    }

    // -- writing --

    private void write() {
        try {
            var plain = producer(Map.of("compression.type", "lz4"));
            var steady = producer(Map.of("transactional.id", "steady", "compression.type", "zstd"));
            var wavering = producer(Map.of("transactional.id", "wavering")); // never closed: that would abort
            steady.initTransactions();
            wavering.initTransactions();
            while (!isLast) {
                steady.beginTransaction();
                wavering.beginTransaction();
                batch(steady, "committed");
                batch(wavering, "aborted");
                batch(plain, "committed");
                batch(steady, "committed");
                wavering.abortTransaction();
                steady.commitTransaction();
                written++;
                begun.countDown();
            }
            wavering.beginTransaction();
            batch(wavering, "aborted");
            batch(plain, "committed");
        } catch (Exception error) {
            failure = error;
            begun.countDown();
        }
    }

    private void batch(KafkaProducer<byte[], byte[]> producer, String truth) {
        for (String topic : topics) {
            for (int number = 0; number < BATCH; number++) {
                int seed = written * 31 + number * 7 + truth.length();
                String key = "key-" + Math.floorMod(seed, KEYS);
                long now = System.currentTimeMillis();
                byte[] value = seed % 9 == 0 ? null : (key + " ").repeat(1 + seed % 12).getBytes(StandardCharsets.UTF_8);
                var record = new ProducerRecord<>(topic, 0, now, key.getBytes(StandardCharsets.UTF_8), value);
                record.headers().add("truth", (truth + " " + key + " " + now).getBytes(StandardCharsets.UTF_8));
                producer.send(record, (place, error) -> {
                    if (error != null) failure = error;
                });
            }
        }
        producer.flush();
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> options) {
        var all = new HashMap<String, Object>(options);
        all.put("bootstrap.servers", servers);
        all.put("enable.idempotence", true);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    // -- reading --

    private KafkaConsumer<byte[], byte[]> consumer(String isolation) {
        Map<String, Object> all = Map.of(
            "bootstrap.servers", servers, "isolation.level", isolation, "enable.auto.commit", false,
            "auto.offset.reset", "earliest", "fetch.max.wait.ms", 10);
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private String consume(String topic, String isolation) throws Exception {
        var place = new TopicPartition(topic, 0);
        try (var consumer = consumer(isolation)) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place); // of committed data: the last stable offset
            ArrayNode records = JSON.createArrayNode();
            while (consumer.position(place) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    records.add(JSON.createArrayNode().add(record.offset()).add(record.timestamp()).add(text(record.key()))
                        .add(text(record.value())).add(text(record.headers().lastHeader("truth").value())));
                }
            }
            return JSON.writeValueAsString(JSON.createObjectNode().put("end", end).set("records", records));
        }
    }

    private String times(String[] words) throws Exception {
        var place = new TopicPartition(words[1], 0);
        var offsets = new ArrayList<Long>();
        try (var consumer = consumer(words[2])) {
            for (String time : Arrays.asList(words).subList(3, words.length)) {
                var found = consumer.offsetsForTimes(Map.of(place, Long.parseLong(time))).get(place);
                offsets.add(found == null ? -1 : found.offset());
            }
        }
        return JSON.writeValueAsString(offsets);
    }

    private static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }
}
