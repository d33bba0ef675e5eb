//! The start screen of `frevo serve`: how to connect.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use frevo_server::settings::{Encryption, Settings};
use frevo_server::share::Share;

use super::listen::{HOW_TO_GET_IT, SMB_PORT};

/// The facts that the screen shows.
#[derive(Debug)]
pub(super) struct Screen<'a> {
    pub(super) settings: &'a Settings,
    /// Each share with its folder.
    pub(super) shares: &'a [(&'a Share, String)],
    /// The address that clients connect to.
    pub(super) address: SocketAddr,
    /// The way of file I/O: io_uring, or threads with the reason.
    pub(super) road: String,
    /// The rights that the process has given up.
    pub(super) confined: String,
    /// The port of remote procedure calls over TCP, if they are answered.
    pub(super) rpc_port: Option<u16>,
    /// The UDP port of QUIC, if it is listened on.
    pub(super) quic_port: Option<u16>,
    pub(super) user: User<'a>,
    /// Port 445 was not permitted.
    pub(super) is_second_choice: bool,
}

/// The user that the screen names.
#[derive(Debug)]
pub(super) enum User<'a> {
    /// The account of this run, with its generated password.
    Generated { name: &'a str, password: &'a str },
    /// An account whose password the user knows.
    Known(&'a str),
    /// No account can log on.
    Nobody,
}

impl Screen<'_> {
    pub(super) fn render(&self) -> String {
        let mut out = String::new();
        self.shares_lines(&mut out);
        self.guests_lines(&mut out);
        self.user_line(&mut out);
        if let Some((share, _)) = self.shares.iter().find(|(share, _)| !share.is_hidden()) {
            self.how_to_connect(share.name(), &mut out);
        }
        if self.is_second_choice {
            let port = self.address.port();
            line(
                &mut out,
                &format!(
                    "  listens on port {port}: this user is not permitted to use port {SMB_PORT}; {HOW_TO_GET_IT}"
                ),
            );
        }
        if let Some(port) = self.rpc_port {
            line(&mut out, &format!("  remote procedure calls over TCP: port {port}"));
        }
        if let Some(port) = self.quic_port {
            line(&mut out, &format!("  SMB over QUIC: UDP port {port}"));
        }
        line(&mut out, &format!("  {}", self.confined));
        line(&mut out, "  Ctrl-C stops the server when pending writes are on the disk");
        out
    }

    fn shares_lines(&self, out: &mut String) {
        let version = concat!("frevo ", env!("CARGO_PKG_VERSION"));
        for (index, (share, folder)) in self.shares.iter().enumerate() {
            let lead = if index == 0 { version } else { "" };
            let unc = format!("\\\\{}\\{}", self.settings.server_name, share.name());
            let mut facts =
                vec![String::from(if share.is_read_only() { "read-only" } else { "read-write" })];
            if share.is_write_once() {
                facts.push(String::from("write once"));
            }
            if let Some(action) = share.brake_action() {
                facts.push(format!("brake: {}", action.as_str()));
            }
            if share.is_scanned() {
                facts.push(String::from("scanned"));
            }
            if index == 0 {
                facts.extend(self.facts());
            }
            let facts = facts.join(" \u{b7} ");
            let width = version.len();
            line(out, &format!("{lead:width$}  {unc} \u{2192} {folder}  ({facts})"));
        }
    }

    /// A line for each share that lets clients in without an account.
    fn guests_lines(&self, out: &mut String) {
        for (share, _) in self.shares.iter().filter(|(share, _)| share.guest_access().is_some()) {
            let rights = if share.lets_guests_write() { "read and write" } else { "read" };
            let name = share.name();
            line(out, &format!("  guests without a password may {rights} {name} (guest = ...)"));
        }
    }

    fn facts(&self) -> [String; 3] {
        let (low, high) = (self.settings.min_dialect, self.settings.max_dialect);
        let dialects = if low == high {
            format!("SMB {}", dialect(high))
        } else {
            format!("SMB {} to {}", dialect(low), dialect(high))
        };
        let encryption = match self.settings.encryption {
            Encryption::Required => "encryption required",
            Encryption::Offered => "encryption offered",
            Encryption::Off => "no encryption",
        };
        [dialects, encryption.to_owned(), self.road.clone()]
    }

    fn user_line(&self, out: &mut String) {
        match &self.user {
            User::Generated { name, password } => line(
                out,
                &format!(
                    "  user {name}   password {password}       \
                     (to change: --user, --password-file)"
                ),
            ),
            User::Known(name) => line(out, &format!("  user {name}")),
            User::Nobody => {
                line(out, "  no user can log on yet; run frevo user add NAME");
            }
        }
    }

    fn how_to_connect(&self, share: &str, out: &mut String) {
        let user = match &self.user {
            User::Generated { name, .. } | User::Known(name) => *name,
            User::Nobody => "USER",
        };
        let (host, port) = (self.address.ip(), self.address.port());
        let usual = port == SMB_PORT;

        let unc = format!("\\\\{}\\{share}", unc_host(host));
        let unc = if share.contains(' ') { format!("\"{unc}\"") } else { unc };
        let tcp_port = if usual {
            String::new()
        } else {
            format!(" /TCPPORT:{port}   (Windows 11 24H2 and up)")
        };
        line(out, &format!("  Windows    net use P: {unc} /user:{user}{tcp_port}"));

        let authority = SocketAddr::new(host, port).to_string();
        let authority = if usual { bracketed(host) } else { authority };
        let url = format!("smb://{}@{authority}/{}", percent(user), percent(share));
        line(out, &format!("  macOS      open {}", quoted(&url)));

        let mut options = format!("user={user},vers={}", dialect(self.settings.max_dialect));
        if self.settings.encryption == Encryption::Required {
            options.push_str(",seal");
        }
        if !usual {
            let _ = write!(options, ",port={port}");
        }
        let source = quoted(&format!("//{host}/{share}"));
        line(
            out,
            &format!("  Linux      sudo mount -t cifs {source} /mnt -o {}", quoted(&options)),
        );
    }
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn dialect(dialect: frevo_proto::Dialect) -> &'static str {
    use frevo_proto::Dialect;
    match dialect {
        Dialect::SMB_2_0_2 => "2.0.2",
        Dialect::SMB_2_1 => "2.1",
        Dialect::SMB_3_0 => "3.0",
        Dialect::SMB_3_0_2 => "3.0.2",
        _ => "3.1.1",
    }
}

/// A host as part of a UNC path, which cannot hold colons.
fn unc_host(host: IpAddr) -> String {
    match host {
        IpAddr::V4(host) => host.to_string(),
        IpAddr::V6(host) => format!("{}.ipv6-literal.net", host.to_string().replace(':', "-")),
    }
}

fn bracketed(host: IpAddr) -> String {
    match host {
        IpAddr::V4(host) => host.to_string(),
        IpAddr::V6(host) => format!("[{host}]"),
    }
}

/// Escapes the bytes that a URL cannot hold, as `%20`.
fn percent(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || b"-._~$".contains(&byte) => {
                out.push(char::from(byte));
            }
            // Writing to a String cannot fail.
            byte => drop(write!(out, "%{byte:02X}")),
        }
    }
    out
}

/// A word, quoted for a shell if necessary.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-._~/:@,=[]%".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(name: &str) -> Share {
        Share::disk(name, frevo_server::vfs::memory(1 << 20))
    }

    fn screen(share: &Share, address: &str, edit: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings { server_name: String::from("BOX"), ..Settings::default() };
        edit(&mut settings);
        let address: SocketAddr = address.parse().unwrap();
        Screen {
            settings: &settings,
            shares: &[(share, String::from("/home/ann/photos"))],
            address,
            road: String::from("io_uring"),
            confined: String::from("confined: files, system calls"),
            rpc_port: None,
            quic_port: None,
            user: User::Generated { name: "ann", password: "k7wq3-9mztb" },
            is_second_choice: address.port() != SMB_PORT,
        }
        .render()
    }

    #[test]
    fn the_usual_port_needs_no_words() {
        let text = screen(&share("photos"), "192.0.2.10:445", |_| {});
        let want = format!(
            "frevo {}  \\\\BOX\\photos \u{2192} /home/ann/photos  \
             (read-write \u{b7} SMB 3.0 to 3.1.1 \u{b7} encryption required \u{b7} io_uring)\n  \
             user ann   password k7wq3-9mztb       (to change: --user, --password-file)\n  \
             Windows    net use P: \\\\192.0.2.10\\photos /user:ann\n  \
             macOS      open smb://ann@192.0.2.10/photos\n  \
             Linux      sudo mount -t cifs //192.0.2.10/photos /mnt -o user=ann,vers=3.1.1,seal\n  \
             confined: files, system calls\n  \
             Ctrl-C stops the server when pending writes are on the disk\n",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(text, want);
    }

    #[test]
    fn shares_for_guests_are_told() {
        use frevo_server::share::{GuestAccess, RunAs};
        let open = |writes| share("scans").guest(GuestAccess { run_as: RunAs::Server, writes });
        let text = |share: &Share| screen(share, "192.0.2.10:445", |_| {});
        assert!(!text(&share("scans")).contains("guests"));
        assert!(text(&open(false)).contains("  guests without a password may read scans ("));
        assert!(text(&open(true)).contains("  guests without a password may read and write scans"));
        assert!(!text(&open(true).encrypt(true)).contains("guests"));
    }

    #[test]
    fn another_port_is_told_to_each_client() {
        let text = screen(&share("My Photos"), "[2001:db8::1]:4450", |settings| {
            settings.encryption = Encryption::Offered;
            settings.min_dialect = frevo_proto::Dialect::SMB_3_1_1;
        });
        for part in [
            "net use P: \"\\\\2001-db8--1.ipv6-literal.net\\My Photos\" /user:ann /TCPPORT:4450",
            "open smb://ann@[2001:db8::1]:4450/My%20Photos",
            "'//2001:db8::1/My Photos' /mnt -o user=ann,vers=3.1.1,port=4450\n",
            "listens on port 4450: this user is not permitted to use port 445; to permit it, run: sudo sysctl",
            "(read-write \u{b7} SMB 3.1.1 \u{b7} encryption offered \u{b7} io_uring)",
        ] {
            assert!(text.contains(part), "{part} not in\n{text}");
        }
    }
}
