import com.hierynomus.msdtyp.AccessMask;
import com.hierynomus.msdtyp.FileTime;
import com.hierynomus.msdtyp.SecurityInformation;
import com.hierynomus.msfscc.fileinformation.FileBasicInformation;
import com.hierynomus.mssmb2.SMB2CompletionFilter;
import com.hierynomus.mssmb2.SMB2CreateDisposition;
import com.hierynomus.mssmb2.SMB2CreateOptions;
import com.hierynomus.mssmb2.SMB2Dialect;
import com.hierynomus.mssmb2.SMB2ShareAccess;
import com.hierynomus.mssmb2.SMBApiException;
import com.hierynomus.smbj.SMBClient;
import com.hierynomus.smbj.SmbConfig;
import com.hierynomus.smbj.auth.AuthenticationContext;
import com.hierynomus.smbj.share.Directory;
import com.hierynomus.smbj.share.DiskShare;
import com.hierynomus.smbj.share.File;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/** smbj against the server in SMB_*; the argument is `signed`, `sealed` or `refused` (by a server that demands encryption). */
public final class SmbjPeer {
    private static DiskShare share;

    private SmbjPeer() {}

    private static AuthenticationContext account(String password) {
        return new AuthenticationContext(Report.env("USER"), password.toCharArray(), "");
    }

    private static File open(String name, SMB2CreateDisposition disposition, AccessMask... access) {
        var wanted = EnumSet.noneOf(AccessMask.class);
        for (var right : access) wanted.add(right);
        return share.openFile(name, wanted, null, SMB2ShareAccess.ALL, disposition, null);
    }

    private static void write(String name, byte[] data) throws Exception {
        try (var file = open(name, SMB2CreateDisposition.FILE_OVERWRITE_IF, AccessMask.GENERIC_WRITE)) {
            file.write(data, 0);
        }
    }

    private static byte[] read(String name) throws Exception {
        try (var file = open(name, SMB2CreateDisposition.FILE_OPEN, AccessMask.GENERIC_READ)) {
            return file.getInputStream().readAllBytes();
        }
    }

    private static Set<String> names(String folder) {
        var found = new HashSet<String>();
        for (var entry : share.list(folder)) found.add(entry.getFileName());
        found.remove(".");
        found.remove("..");
        return found;
    }

    private static Directory folder(String name) {
        return share.openDirectory(
                name, EnumSet.of(AccessMask.GENERIC_READ), null, SMB2ShareAccess.ALL, SMB2CreateDisposition.FILE_OPEN, null);
    }

    private static void files() {
        Report.check("write-read", () -> {
            for (int size : new int[] {0, 1, 65536, 3000001}) {
                write("smbj.bin", Report.pattern(size));
                Report.same(read("smbj.bin"), Report.pattern(size));
            }
        });
        Report.check("append", () -> {
            write("appended", Report.pattern(1000));
            try (var file = open("appended", SMB2CreateDisposition.FILE_OPEN, AccessMask.FILE_APPEND_DATA, AccessMask.FILE_READ_ATTRIBUTES);
                    var out = file.getOutputStream(true)) {
                out.write(Report.pattern(500));
            }
            Report.must(read("appended").length == 1500, "length " + read("appended").length);
            share.rm("appended");
        });
        Report.check("copy-by-server", () -> {
            write("source", Report.pattern(300_000));
            try (var from = open("source", SMB2CreateDisposition.FILE_OPEN, AccessMask.GENERIC_READ);
                    var to = open("copy", SMB2CreateDisposition.FILE_OVERWRITE_IF, AccessMask.GENERIC_READ, AccessMask.GENERIC_WRITE)) {
                from.remoteCopyTo(to);
            }
            Report.same(read("copy"), Report.pattern(300_000));
            share.rm("copy");
            share.rm("source");
        });
        Report.check("set-length", () -> {
            write("cut", Report.pattern(5000));
            try (var file = open("cut", SMB2CreateDisposition.FILE_OPEN, AccessMask.GENERIC_WRITE)) {
                file.setLength(1234);
            }
            Report.same(read("cut"), Report.pattern(1234));
            share.rm("cut");
        });
        Report.check("rename-and-link", () -> {
            write("before", Report.pattern(10));
            try (var file = open("before", SMB2CreateDisposition.FILE_OPEN, AccessMask.GENERIC_READ, AccessMask.DELETE)) {
                file.rename("after");
                file.createHardlink("second");
            }
            Report.must(!share.fileExists("before"), "the old name is there");
            Report.same(read("second"), Report.pattern(10));
            share.rm("after");
            share.rm("second");
        });
        Report.check("delete-on-close", () -> {
            try (var file = open("gone", SMB2CreateDisposition.FILE_CREATE, AccessMask.GENERIC_WRITE, AccessMask.DELETE)) {
                file.deleteOnClose();
            }
            Report.must(!share.fileExists("gone"), "the file is there");
        });
    }

    private static void folders() {
        Report.check("list", () -> {
            share.mkdir("listed");
            var wanted = new HashSet<String>();
            for (int i = 0; i < 60; i++) wanted.add("näme " + i + " \uD83E\uDD80");
            for (var name : wanted) write("listed\\" + name, name.getBytes("UTF-8"));
            Report.must(names("listed").equals(wanted), names("listed").size() + " names");
            Report.must(share.list("listed", "näme 1*").size() == 11, "the pattern matches others");
            share.rmdir("listed", true);
            Report.must(!share.folderExists("listed"), "the folder is there");
        });
        Report.check("stat-and-times", () -> {
            write("stat", Report.pattern(77));
            var time = FileTime.ofEpochMillis(1_600_000_000_000L);
            share.setFileInformation("stat", new FileBasicInformation(
                    FileBasicInformation.DONT_SET, FileBasicInformation.DONT_SET, time, FileBasicInformation.DONT_SET, 0x23));
            var found = share.getFileInformation("stat");
            Report.must(found.getStandardInformation().getEndOfFile() == 77, "size");
            Report.must(found.getBasicInformation().getLastWriteTime().equals(time), "time");
            Report.must((found.getBasicInformation().getFileAttributes() & 0x27) == 0x23, "attributes");
            share.setFileInformation("stat", new FileBasicInformation(
                    FileBasicInformation.DONT_SET, FileBasicInformation.DONT_SET, FileBasicInformation.DONT_SET, FileBasicInformation.DONT_SET, 0x20));
            share.rm("stat");
        });
        Report.check("security", () -> {
            write("secured", new byte[0]);
            var list = share.getSecurityInfo("secured", EnumSet.of(
                    SecurityInformation.OWNER_SECURITY_INFORMATION, SecurityInformation.GROUP_SECURITY_INFORMATION,
                    SecurityInformation.DACL_SECURITY_INFORMATION));
            Report.must(list.getOwnerSid() != null && list.getDacl() != null && !list.getDacl().getAces().isEmpty(), "no list");
            share.rm("secured");
        });
        Report.check("space", () -> {
            var space = share.getShareInformation();
            Report.must(space.getTotalSpace() > 0 && space.getFreeSpace() > 0, "no space");
        });
        Report.check("watch", () -> {
            share.mkdir("watched");
            try (var watched = folder("watched")) {
                var answer = watched.watchAsync(EnumSet.of(SMB2CompletionFilter.FILE_NOTIFY_CHANGE_FILE_NAME), false);
                write("watched\\new", new byte[0]);
                var change = answer.get(10, TimeUnit.SECONDS).getFileNotifyInfoList().get(0);
                Report.must(change.getFileName().equals("new"), change.toString());
            }
            share.rmdir("watched", true);
        });
        Report.check("share-modes", () -> {
            try (var held = share.openFile("held", EnumSet.of(AccessMask.GENERIC_WRITE), null, EnumSet.noneOf(SMB2ShareAccess.class),
                    SMB2CreateDisposition.FILE_OVERWRITE_IF, EnumSet.noneOf(SMB2CreateOptions.class))) {
                var said = Report.refused(() -> read("held"));
                Report.must(said.contains("STATUS_SHARING_VIOLATION"), said);
            }
            share.rm("held");
        });
    }

    /** Shows what a program that asks for no encryption sees of a server that demands it. */
    private static void refused() {
        Report.check("shows-without-encryption", () -> {
            try (var client = new SMBClient(SmbConfig.createDefaultConfig());
                    var connection = client.connect(Report.env("ADDR"), Integer.parseInt(Report.env("PORT")))) {
                var said = Report.refused(() -> {
                    var session = connection.authenticate(account(Report.env("PASS")));
                    session.connectShare(Report.env("SHARE")).close();
                });
                System.err.println("without encryption: " + said);
                Report.must(said.contains("STATUS_ACCESS_DENIED"), said);
            }
        });
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("refused")) {
            refused();
            System.exit(0);
        }
        var config = SmbConfig.builder().withEncryptData(arguments[0].equals("sealed")).withDfsEnabled(true).build();
        try (var client = new SMBClient(config);
                var connection = client.connect(Report.env("ADDR"), Integer.parseInt(Report.env("PORT")))) {
            Report.check("dialect", () -> Report.must(
                    connection.getNegotiatedProtocol().getDialect() == SMB2Dialect.SMB_3_1_1, "not 3.1.1"));
            var session = connection.authenticate(account(Report.env("PASS")));
            share = (DiskShare) session.connectShare(Report.env("SHARE"));
            files();
            folders();
            share.close();
            session.close();
        }
        Report.check("wrong-password", () -> {
            try (var client = new SMBClient(config);
                    var connection = client.connect(Report.env("ADDR"), Integer.parseInt(Report.env("PORT")))) {
                try {
                    connection.authenticate(account("wrong"));
                    throw new AssertionError("a wrong password is accepted");
                } catch (SMBApiException e) {
                    Report.must(e.getStatusCode() == 0xC000006DL, e.toString());
                }
            }
        });
        System.exit(0);
    }
}
