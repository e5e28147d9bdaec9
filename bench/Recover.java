// Apache Kafka recovering a segment, over and over: the yardstick of `python -m bench log`.
//
// Arguments: the partition directory and how often to warm up. Then, for every line on standard input, one recovery
// of segment 0, answered by its CPU time in nanoseconds (this thread's) and the bytes that it read.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

public class Recover {
    public static void main(String[] arguments) throws Exception {
        File directory = new File(arguments[0]);
        for (int run = 0; run < Integer.parseInt(arguments[1]); run++) recover(directory);
        System.out.println("ready");
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        while (requests.readLine() != null) System.out.println(recover(directory));
    }

    private static String recover(File directory) throws Exception {
        TopicPartition partition = new TopicPartition("orders", 0);
        ProducerStateManager producers = new ProducerStateManager(
            partition, directory, 900_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
        LeaderEpochFileCache epochs = new LeaderEpochFileCache(partition,
            new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(directory), new LogDirFailureChannel(1)),
            null);
        LogSegment segment =
            LogSegment.open(directory, 0, new LogConfig(Map.of()), Time.SYSTEM, true, 0, false, "");
        long started = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
        int cut = segment.recover(producers, epochs);
        long taken = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime() - started;
        if (cut != 0) throw new IllegalStateException("cut " + cut + " bytes of a sound segment");
        int size = segment.size();
        segment.close();
        return taken + " " + size;
    }
}
