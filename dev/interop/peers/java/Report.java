import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.Arrays;

/** The lines of the checks, as the other peers print them. */
final class Report {
    interface Check {
        void run() throws Exception;
    }

    private Report() {}

    static String env(String name) {
        return System.getenv("SMB_" + name);
    }

    /** Returns the test bytes: byte i is i * 7 + i / 256. */
    static byte[] pattern(int size) {
        byte[] bytes = new byte[size];
        for (int i = 0; i < size; i++) bytes[i] = (byte) (i * 7 + (i >> 8));
        return bytes;
    }

    /** Prints `ok NAME SECONDS`, or `FAIL NAME SECONDS REASON`. */
    static void check(String name, Check body) {
        long began = System.nanoTime();
        String line;
        try {
            body.run();
            line = "ok " + name + " " + seconds(began);
        } catch (Throwable e) {
            var trace = new ByteArrayOutputStream();
            e.printStackTrace(new PrintStream(trace));
            System.err.println(trace);
            line = "FAIL " + name + " " + seconds(began) + " " + e.toString().replaceAll("\\s+", " ");
        }
        System.out.println(line);
    }

    private static String seconds(long began) {
        return String.format(java.util.Locale.ROOT, "%.2f", (System.nanoTime() - began) / 1e9);
    }

    static void must(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }

    static void same(byte[] found, byte[] wanted) {
        must(Arrays.equals(found, wanted), found.length + " bytes are not the " + wanted.length + " written ones");
    }

    /** Runs `body`, which must fail; returns what a user sees of it. */
    static String refused(Check body) {
        try {
            body.run();
        } catch (Exception e) {
            return e.toString();
        }
        throw new AssertionError("success, but a refusal was expected");
    }
}
