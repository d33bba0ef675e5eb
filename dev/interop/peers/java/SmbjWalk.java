import com.hierynomus.msdtyp.AccessMask;
import com.hierynomus.msfscc.FileAttributes;
import com.hierynomus.msfscc.fileinformation.FileIdBothDirectoryInformation;
import com.hierynomus.mssmb2.SMB2CreateDisposition;
import com.hierynomus.mssmb2.SMB2ShareAccess;
import com.hierynomus.smbj.SMBClient;
import com.hierynomus.smbj.SmbConfig;
import com.hierynomus.smbj.auth.AuthenticationContext;
import com.hierynomus.smbj.share.DiskShare;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Walks a folder of a namespace with smbj and writes {path: "dir" or "SIZE SHA-256"} as JSON: SmbjWalk FOLDER FILE once|anew; `cat` prints a file. */
public final class SmbjWalk {
    private static final Map<String, String> found = new TreeMap<>();
    private static final List<SMBClient> clients = new ArrayList<>();
    private static boolean anew;

    private SmbjWalk() {}

    private static String entry(byte[] data) throws Exception {
        var sum = MessageDigest.getInstance("SHA-256").digest(data);
        return data.length + " " + HexFormat.of().formatHex(sum);
    }

    private static DiskShare connected() throws Exception {
        var client = new SMBClient(SmbConfig.builder().withDfsEnabled(true).build());
        clients.add(client);
        var account = new AuthenticationContext(Report.env("USER"), Report.env("PASS").toCharArray(), "");
        var session = client.connect(Report.env("ADDR")).authenticate(account);
        return (DiskShare) session.connectShare(Report.env("SHARE"));
    }

    /** Lists a folder. A client that knows the root asks for no link below it: another one, which knows nothing yet, does. */
    private static void walk(DiskShare share, String path) throws Exception {
        List<FileIdBothDirectoryInformation> entries;
        try {
            entries = share.list(path.replace('/', '\\'));
        } catch (NullPointerException linkThatIsNotFollowed) {
            if (!anew) throw linkThatIsNotFollowed;
            share = connected();
            entries = share.list(path.replace('/', '\\'));
        }
        for (var one : entries) {
            if (one.getFileName().equals(".") || one.getFileName().equals("..")) continue;
            var inside = path + "/" + one.getFileName();
            // A link has the attributes of a folder.
            if ((one.getFileAttributes() & FileAttributes.FILE_ATTRIBUTE_DIRECTORY.getValue()) != 0) {
                found.put(inside, "dir");
                int before = clients.size();
                walk(share, inside);
                while (clients.size() > before) clients.remove(before).close();
                continue;
            }
            try (var file = share.openFile(inside.replace('/', '\\'), EnumSet.of(AccessMask.GENERIC_READ), null,
                    SMB2ShareAccess.ALL, SMB2CreateDisposition.FILE_OPEN, null)) {
                found.put(inside, entry(file.getInputStream().readAllBytes()));
            }
        }
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[2].equals("cat")) {
            try (var file = connected().openFile(arguments[0].replace('/', '\\'), EnumSet.of(AccessMask.GENERIC_READ), null,
                    SMB2ShareAccess.ALL, SMB2CreateDisposition.FILE_OPEN, null)) {
                System.out.println(new String(file.getInputStream().readAllBytes()));
            }
            System.exit(0);
        }
        anew = arguments[2].equals("anew");
        walk(connected(), arguments[0]);
        for (var client : clients) client.close();
        var lines = found.entrySet().stream().map(one -> quoted(one.getKey()) + ": " + quoted(one.getValue()));
        Files.writeString(Path.of(arguments[1]), "{" + String.join(",\n", lines.toList()) + "}");
    }
}
