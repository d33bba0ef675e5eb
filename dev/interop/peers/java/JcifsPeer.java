import java.util.Arrays;
import java.util.HashSet;
import java.util.Properties;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import jcifs.CIFSContext;
import jcifs.FileNotifyInformation;
import jcifs.config.PropertyConfiguration;
import jcifs.context.BaseContext;
import jcifs.smb.NtlmPasswordAuthenticator;
import jcifs.smb.SmbFile;

/** jcifs-ng against the server in SMB_*; the argument is `signed` or `refused` (by a server that demands encryption). */
public final class JcifsPeer {
    private static CIFSContext context;
    private static final String SERVER = "smb://" + Report.env("ADDR") + ":" + Report.env("PORT") + "/";
    private static final String SHARE = SERVER + Report.env("SHARE") + "/";

    private JcifsPeer() {}

    private static CIFSContext context(String password, String maximum, boolean sealed) throws Exception {
        var settings = new Properties();
        settings.setProperty("jcifs.smb.client.minVersion", "SMB202");
        settings.setProperty("jcifs.smb.client.maxVersion", maximum);
        settings.setProperty("jcifs.smb.client.encryptionEnabled", Boolean.toString(sealed));
        return new BaseContext(new PropertyConfiguration(settings))
                .withCredentials(new NtlmPasswordAuthenticator("", Report.env("USER"), password));
    }

    private static SmbFile at(String name) throws Exception {
        return new SmbFile(SHARE + name, context);
    }

    private static void write(String name, byte[] data, boolean append) throws Exception {
        try (var file = at(name);
                var out = file.openOutputStream(append)) {
            out.write(data);
        }
    }

    private static byte[] read(String name) throws Exception {
        try (var file = at(name);
                var in = file.getInputStream()) {
            return in.readAllBytes();
        }
    }

    private static void files() {
        Report.check("write-read", () -> {
            for (int size : new int[] {0, 1, 65536, 3000001}) {
                write("jcifs.bin", Report.pattern(size), false);
                Report.same(read("jcifs.bin"), Report.pattern(size));
            }
        });
        Report.check("append", () -> {
            write("appended", Report.pattern(1000), false);
            write("appended", Report.pattern(500), true);
            Report.must(at("appended").length() == 1500, "length");
            at("appended").delete();
        });
        Report.check("random-access", () -> {
            write("random", Report.pattern(5000), false);
            try (var file = at("random");
                    var open = file.openRandomAccess("rw")) {
                open.seek(1000);
                open.write(new byte[10], 0, 10);
                open.setLength(2000);
            }
            var wanted = Report.pattern(2000);
            Arrays.fill(wanted, 1000, 1010, (byte) 0);
            Report.same(read("random"), wanted);
            at("random").delete();
        });
        Report.check("copy", () -> {
            write("source", Report.pattern(300_000), false);
            at("source").copyTo(at("copy"));
            Report.same(read("copy"), Report.pattern(300_000));
            at("copy").delete();
            at("source").delete();
        });
        Report.check("rename", () -> {
            write("before", Report.pattern(10), false);
            write("after", Report.pattern(20), false);
            var said = Report.refused(() -> at("before").renameTo(at("after")));
            Report.must(said.contains("already exists"), said);
            at("before").renameTo(at("after"), true);
            Report.must(!at("before").exists(), "the old name is there");
            Report.same(read("after"), Report.pattern(10));
            at("after").delete();
        });
    }

    private static void folders() {
        Report.check("list", () -> {
            at("listed/deep/").mkdirs();
            var wanted = new HashSet<String>();
            for (int i = 0; i < 60; i++) wanted.add("näme " + i);
            for (var name : wanted) write("listed/deep/" + name, name.getBytes("UTF-8"), false);
            Report.must(new HashSet<>(Arrays.asList(at("listed/deep/").list())).equals(wanted), "names");
            Report.must(at("listed/deep/").listFiles("näme 1*").length == 11, "the pattern matches others");
            at("listed/").delete();
            Report.must(!at("listed/").exists(), "the folder is there");
        });
        Report.check("doubled-separators", () -> {
            at("doubled/").mkdir();
            write("doubled//file", Report.pattern(5), false);
            Report.same(read("doubled/file"), Report.pattern(5));
            at("doubled/").delete();
        });
        Report.check("stat-and-times", () -> {
            write("stat", Report.pattern(77), false);
            at("stat").setLastModified(1_600_000_000_000L);
            at("stat").setReadOnly();
            Report.must(at("stat").length() == 77 && at("stat").lastModified() == 1_600_000_000_000L, "size or time");
            Report.must(!at("stat").canWrite(), "it is not read-only");
            at("stat").setReadWrite();
            at("stat").delete();
        });
        Report.check("security", () -> {
            write("secured", new byte[0], false);
            Report.must(at("secured").getSecurity(true).length > 0, "no list");
            // The name comes from LSARPC.
            var owner = at("secured").getOwnerUser(true);
            Report.must(!owner.getAccountName().isEmpty(), owner.toString());
            System.err.println("owner: " + owner.toDisplayString());
            at("secured").delete();
        });
        Report.check("list-shares", () -> {
            var found = Arrays.asList(new SmbFile(SERVER, context).list());
            Report.must(found.contains(Report.env("SHARE") + "/") || found.contains(Report.env("SHARE")), found.toString());
        });
        Report.check("space", () -> Report.must(at("").getDiskFreeSpace() > 0, "no space"));
        Report.check("watch", () -> {
            at("watched/").mkdir();
            var pool = Executors.newSingleThreadExecutor();
            try (var folder = at("watched/");
                    var watch = folder.watch(FileNotifyInformation.FILE_NOTIFY_CHANGE_FILE_NAME, false)) {
                var answer = pool.submit(watch);
                Thread.sleep(300);
                write("watched/new", new byte[0], false);
                var change = answer.get(10, TimeUnit.SECONDS).get(0);
                Report.must(change.getFileName().equals("new"), change.toString());
            } finally {
                pool.shutdownNow();
            }
            at("watched/").delete();
        });
    }

    /** Shows what a program sees of a server that demands encryption, which no release of jcifs-ng has. */
    private static void shows(String maximum, boolean sealed, String message) {
        Report.check("shows-" + maximum + (sealed ? "-with" : "-without") + "-encryption", () -> {
            context = context(Report.env("PASS"), maximum, sealed);
            var said = Report.refused(() -> at("").list());
            Report.must(said.contains(message), said);
        });
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("refused")) {
            shows("SMB210", false, "Failed to connect");
            shows("SMB311", false, "SmbAuthException: Access is denied");
            shows("SMB311", true, "Server requires encryption, not yet supported");
            System.exit(0);
        }
        context = context(Report.env("PASS"), "SMB311", false);
        files();
        folders();
        Report.check("wrong-password", () -> {
            var right = context;
            context = context("wrong", "SMB311", false);
            var said = Report.refused(() -> at("").list());
            context = right;
            Report.must(said.contains("SmbAuthException"), said);
        });
        System.exit(0);
    }
}
