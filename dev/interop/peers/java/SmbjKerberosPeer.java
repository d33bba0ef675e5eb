import com.hierynomus.msdtyp.AccessMask;
import com.hierynomus.mserref.NtStatus;
import com.hierynomus.mssmb2.SMB2CreateDisposition;
import com.hierynomus.mssmb2.SMB2ShareAccess;
import com.hierynomus.mssmb2.SMBApiException;
import com.hierynomus.smbj.SMBClient;
import com.hierynomus.smbj.SmbConfig;
import com.hierynomus.smbj.auth.GSSAuthenticationContext;
import com.hierynomus.smbj.auth.SpnegoAuthenticator;
import com.hierynomus.smbj.connection.Connection;
import com.hierynomus.smbj.share.DiskShare;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import javax.security.auth.Subject;
import javax.security.auth.login.AppConfigurationEntry;
import javax.security.auth.login.Configuration;
import javax.security.auth.login.LoginContext;

/** smbj with tickets by JAAS, from the cache that KRB5CCNAME names, against the server in SMB_*. */
public final class SmbjKerberosPeer {
    private static final int LIFE_SECONDS = 8;

    private SmbjKerberosPeer() {}

    private static void ticket(String life) throws Exception {
        var kinit = new ProcessBuilder("kinit", "-l", life, "smbuser").redirectErrorStream(true).start();
        try (var input = kinit.getOutputStream()) {
            input.write((Report.env("PASS_OF_REALM") + "\n").getBytes());
        }
        String said = new String(kinit.getInputStream().readAllBytes());
        Report.must(kinit.waitFor() == 0, "kinit: " + said);
    }

    /** Logs on by Java's own Kerberos; its module reads the cache. */
    private static Subject subject() throws Exception {
        var cache = System.getenv("KRB5CCNAME").replaceFirst("^FILE:", "");
        var options = Map.of(
                "useTicketCache", "true", "ticketCache", cache, "doNotPrompt", "true", "refreshKrb5Config", "true");
        var module = new AppConfigurationEntry(
                "com.sun.security.auth.module.Krb5LoginModule", AppConfigurationEntry.LoginModuleControlFlag.REQUIRED, options);
        var login = new LoginContext("peer", new Subject(), null, new Configuration() {
            @Override
            public AppConfigurationEntry[] getAppConfigurationEntry(String name) {
                return new AppConfigurationEntry[] {module};
            }
        });
        login.login();
        return login.getSubject();
    }

    private interface Use {
        void of(DiskShare share) throws Exception;
    }

    /** Logs on over a connection of its own. */
    private static void with(boolean sealed, Use use) throws Exception {
        // Without NTLM beside it.
        var config = SmbConfig.builder()
                .withAuthenticators(List.of(new SpnegoAuthenticator.Factory()))
                .withEncryptData(sealed)
                .withSigningRequired(true)
                .build();
        try (var client = new SMBClient(config);
                Connection connection = client.connect(Report.env("HOST"), Integer.parseInt(Report.env("PORT")))) {
            var who = new GSSAuthenticationContext("smbuser", Report.env("REALM"), subject(), null);
            use.of((DiskShare) connection.authenticate(who).connectShare(Report.env("SHARE")));
        }
    }

    private static byte[] read(DiskShare share, String name) throws Exception {
        var access = EnumSet.of(AccessMask.GENERIC_READ);
        try (var file = share.openFile(name, access, null, SMB2ShareAccess.ALL, SMB2CreateDisposition.FILE_OPEN, null)) {
            return file.getInputStream().readAllBytes();
        }
    }

    private static void write(DiskShare share, String name, byte[] data) throws Exception {
        var access = EnumSet.of(AccessMask.GENERIC_WRITE);
        var disposition = SMB2CreateDisposition.FILE_OVERWRITE_IF;
        try (var file = share.openFile(name, access, null, SMB2ShareAccess.ALL, disposition, null)) {
            file.write(data, 0);
        }
    }

    public static void main(String[] args) {
        for (boolean sealed : new boolean[] {false, true}) {
            Report.check(sealed ? "smbj-sealed" : "smbj-write-read", () -> {
                ticket("1h");
                with(sealed, share -> {
                    for (int size : new int[] {0, 1, 65536, 3000001}) {
                        write(share, "jaas.bin", Report.pattern(size));
                        Report.same(read(share, "jaas.bin"), Report.pattern(size));
                    }
                    Report.must(share.list("").stream().anyMatch(e -> e.getFileName().equals("jaas.bin")), "not listed");
                });
            });
        }
        Report.check("smbj-after-the-end", () -> {
            ticket(LIFE_SECONDS + "s");
            try {
                with(false, share -> {
                    Report.same(read(share, "jaas.bin"), Report.pattern(3000001));
                    Thread.sleep((LIFE_SECONDS + 2) * 1000);
                    read(share, "jaas.bin");
                });
                throw new AssertionError("the session outlives its ticket");
            } catch (SMBApiException e) {
                Report.must(e.getStatusCode() == NtStatus.STATUS_NETWORK_SESSION_EXPIRED.getValue(), e.toString());
            }
            ticket("1h");
            with(false, share -> Report.same(read(share, "jaas.bin"), Report.pattern(3000001)));
        });
    }
}
