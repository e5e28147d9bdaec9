import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import kafka.server.KafkaConfig;
import kafka.server.KafkaRaftServer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;

/**
 * Brokers of Apache Kafka, started one after the other in one JVM, each on directories of its own.
 *
 * <p>On standard input one JSON object per line: {@code {"settings": {...}, "address": "host:port"}}. The answer is a line
 * {@code {"started": true, "topics": {"orders": {"0": [earliest, latest], "1": []}}}}, where no offsets are those of a
 * partition that nobody serves, or {@code {"started": false, "error": "..."}} for a broker that gave up before it served anybody; one that
 * did neither in two minutes is {@code "late"}, which says more about the machine.
 *
 * <p>A broker that gives up would end its process. Here whoever asks for that is stopped instead, and what is left of the
 * broker stays behind in the JVM: after some dozens of them it is time for another one.
 */
public class StartJudge {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long START_MS = 120_000;
    private static final long STOP_MS = 20_000;
    private static final long SETTLED_MS = 1_000; // between two looks
    private static final long LOOK_MS = 50;
    private static final int ASK_MS = 3_000;
    private static final List<Long> NOBODY = List.of();

    /** What Kafka's own thread is stopped with when it wants to end the process. */
    private static class Ended extends Error {
        Ended(String message) {
            super(message);
        }
    }

    private static volatile CompletableFuture<String> given_up = new CompletableFuture<>();
    private static volatile ThreadGroup broker = new ThreadGroup("no broker yet"); // all threads of the one that is judged

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((code, message) -> end("exit " + code, message));
        Exit.setHaltProcedure((code, message) -> end("halt " + code, message));
        Exit.setShutdownHookAdder((name, hook) -> { });
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> { });
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(judge(JSON.readTree(line)));
            out.flush();
        }
        Runtime.getRuntime().halt(0); // whatever is left of brokers that gave up
    }

    private static void end(String how, String message) {
        if (broker.parentOf(Thread.currentThread().getThreadGroup())) { // and none that gave up long ago
            given_up.complete(how + (message == null ? "" : ": " + message));
        }
        throw new Ended(how);
    }

    private static ObjectNode judge(JsonNode asked) throws Exception {
        given_up = new CompletableFuture<>();
        broker = new ThreadGroup("broker");
        var server = new CompletableFuture<KafkaRaftServer>();
        var started = new CompletableFuture<String>();
        var properties = new Properties();
        asked.get("settings").fields().forEachRemaining(one -> properties.put(one.getKey(), one.getValue().asText()));
        run("start", () -> {
            try {
                var made = new KafkaRaftServer(KafkaConfig.fromProps(properties, false), Time.SYSTEM);
                server.complete(made);
                made.startup();
                started.complete("");
            } catch (Throwable error) {
                started.complete("it ended with " + told(error));
            }
        });
        var answer = JSON.createObjectNode();
        try {
            String problem = (String) CompletableFuture.anyOf(started, given_up).get(START_MS, TimeUnit.MILLISECONDS);
            if (problem.isEmpty()) {
                var topics = JSON.valueToTree(topics(asked.get("address").asText()));
                problem = given_up.getNow("");
                answer.set("topics", topics);
            }
            answer.put("started", problem.isEmpty());
            if (!problem.isEmpty()) {
                answer.put("error", problem).remove("topics");
            }
        } catch (TimeoutException | ExecutionException error) {
            answer.put("started", false).put("error", given_up.getNow(told(error)));
            answer.put("late", !given_up.isDone() && error instanceof TimeoutException);
        }
        if (server.isDone()) {
            Thread stopping = run("stop", () -> server.join().shutdown());
            stopping.join(answer.get("started").asBoolean() ? STOP_MS : LOOK_MS);
        }
        return answer;
    }

    private static Thread run(String name, Runnable work) {
        var thread = new Thread(broker, work, name);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static String told(Throwable error) {
        var told = new StringBuilder();
        for (Throwable one = error; one != null && told.length() < 2_000; one = one.getCause()) {
            told.append(told.length() == 0 ? "" : " <- ").append(one.getClass().getSimpleName() + ": " + one.getMessage());
        }
        return told.toString();
    }

    /** All topics, once two looks in a row, some time apart, are the same: what nobody serves by then, nobody will. */
    private static Map<String, Map<String, List<Long>>> topics(String address) throws Exception {
        Map<String, Object> client = Map.of("bootstrap.servers", address, "request.timeout.ms", ASK_MS, "default.api.timeout.ms", ASK_MS);
        try (var admin = Admin.create(client)) {
            Map<TopicPartition, List<Long>> before = null;
            while (!given_up.isDone()) {
                var now = offsets(admin);
                if (!now.containsValue(NOBODY) && !now.isEmpty() || now.equals(before)) {
                    before = now;
                    break;
                }
                before = now;
                Thread.sleep(SETTLED_MS);
            }
            var found = new TreeMap<String, Map<String, List<Long>>>();
            for (var one : (before == null ? Map.<TopicPartition, List<Long>>of() : before).entrySet()) {
                var partition = one.getKey();
                found.computeIfAbsent(partition.topic(), name -> new HashMap<>()).put("" + partition.partition(), one.getValue());
            }
            return found;
        }
    }

    private static Map<TopicPartition, List<Long>> offsets(Admin admin) throws Exception {
        Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
        var asked = new HashMap<TopicPartition, List<KafkaFuture<ListOffsetsResultInfo>>>();
        var options = new ListOffsetsOptions();
        for (TopicDescription topic : admin.describeTopics(names).allTopicNames().get().values()) {
            for (var one : topic.partitions()) {
                var partition = new TopicPartition(topic.name(), one.partition());
                var futures = new ArrayList<KafkaFuture<ListOffsetsResultInfo>>();
                if (one.leader() != null && !one.leader().isEmpty()) {
                    for (var spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest())) {
                        futures.add(admin.listOffsets(Map.of(partition, spec), options).partitionResult(partition));
                    }
                }
                asked.put(partition, futures);
            }
        }
        var found = new HashMap<TopicPartition, List<Long>>();
        for (var one : asked.entrySet()) {
            var offsets = new ArrayList<Long>();
            for (var future : one.getValue()) {
                try {
                    offsets.add(future.get().offset());
                } catch (ExecutionException error) {
                    offsets.clear();
                    break;
                }
            }
            found.put(one.getKey(), offsets);
        }
        return found;
    }
}
