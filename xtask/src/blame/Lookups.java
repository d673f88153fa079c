import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.SplittableRandom;

/** Reads 480 MB of heap at random and writes down, every half second, how often it has. */
class Lookups {
    public static void main(String[] arguments) throws Exception {
        long[][] heap = new long[480][1 << 17];
        for (long[] part : heap) {
            java.util.Arrays.fill(part, 1);
        }
        Path counts = Path.of(arguments[0]);
        Path next = Path.of(arguments[0] + ".next");
        SplittableRandom random = new SplittableRandom(1);
        long sum = 0;
        for (long count = 0, written = 0;;) {
            for (int n = 0; n < 20; n++, count++) {
                sum += heap[random.nextInt(heap.length)][random.nextInt(1 << 17)];
            }
            Thread.sleep(0, 1);
            long now = System.nanoTime();
            if (now - written > 500_000_000L && sum > 0) {
                Files.writeString(next, count + "\n");
                Files.move(next, counts, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
                written = now;
            }
        }
    }
}
