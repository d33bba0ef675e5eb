//! The options that several commands have: of connections and of copies.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use frevo_client::capture::{CAPTURE_BYTES_MIN, CaptureData, DATA_BYTES_MAX};
use frevo_client::{AppInstance, Fingerprint, ServerName};
use frevo_config::DialectName;

use super::dos_attributes::AttributePolicy;
use super::nodes::NodeAddress;
use super::output::parse_size;
use crate::value_words::words;

/// The options of all commands that connect to a server. It comes last in each command, like
/// all groups of options with a heading: clap puts all later options under that heading.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// User to log on as [default: the URL's, else $FREVO_USER, else $USER]
    #[arg(long, short = 'U', value_name = "NAME")]
    pub(crate) user: Option<String>,

    /// File with the lines username=, password= and domain=; only its owner may
    /// be able to read it
    #[arg(long, short = 'A', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) credentials: Option<PathBuf>,

    /// Read the password from standard input
    #[arg(long)]
    pub(crate) password_stdin: bool,

    /// Take the password as an NT hash of 32 hexadecimal digits
    #[arg(long)]
    pub(crate) nt_hash: bool,

    /// Log on by Kerberos [default: preferred if there is a ticket and neither a
    /// user nor a password is given, else off]
    #[arg(long, value_name = "HOW")]
    pub(crate) kerberos: Option<KerberosUse>,

    /// Log on by Kerberos with the user's key in this keytab
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) keytab: Option<PathBuf>,

    /// Allow a guest logon (user `guest`, no password by default). Nothing is signed
    /// or encrypted
    #[arg(long, conflicts_with_all = ["encrypt", "kerberos", "keytab"])]
    pub(crate) guest: bool,

    #[cfg(feature = "smb1")]
    #[command(flatten)]
    pub(super) smb1: super::smb1::options::Smb1,

    /// Encrypt all messages, even if the server does not require it
    #[arg(long, short = 'e')]
    pub(crate) encrypt: bool,

    /// Sign only if the server requires it: faster, but someone on the network
    /// could change data unnoticed
    #[arg(long)]
    pub(crate) sign_when_asked: bool,

    /// Newest SMB dialect to use [default: 3.1.1]
    #[arg(long, value_name = "DIALECT", value_parser = words::<DialectName>(DialectName::WORDS))]
    pub(crate) max_dialect: Option<DialectName>,

    /// Oldest SMB dialect to use [default: 3.0]
    #[arg(long, value_name = "DIALECT", value_parser = words::<DialectName>(DialectName::WORDS))]
    pub(crate) min_dialect: Option<DialectName>,

    /// Offer this cipher; repeatable, in order of preference [default: all]
    #[arg(long, value_name = "CIPHER")]
    pub(crate) cipher: Vec<CipherName>,

    /// Offer this signing algorithm; repeatable, in order of preference
    /// [default: all]
    #[arg(long, value_name = "ALGORITHM")]
    pub(crate) signing: Vec<SigningName>,

    /// Connections of one session if the server supports multichannel, 1 to 32, or
    /// auto: 4 over each of its fastest interfaces with several queues, 1 over
    /// others
    #[arg(long, value_name = "N", default_value = "auto", value_parser = parse_channels)]
    pub(crate) channels: usize,

    /// Connect by SMB Direct (RDMA): auto uses TCP where it does not work, and says
    /// so; to a server without RDMA transforms data moves by RDMA only with
    /// --sign-when-asked and without encryption
    #[arg(long, value_name = "HOW", default_value = "off")]
    pub(crate) rdma: RdmaUse,

    /// Connect by SMB over QUIC, as a URL smb+quic://HOST does: auto uses it where TCP
    /// does not reach the server
    #[arg(long, value_name = "HOW", default_value = "off")]
    pub(crate) quic: QuicUse,

    /// Trust the server with this certificate (SHA-256) over QUIC, and no other;
    /// repeatable [default: the system's authorities]
    #[arg(long, value_name = "SHA256")]
    pub(crate) quic_pin: Vec<Fingerprint>,

    /// Trust the authorities in this file over QUIC, in place of the system's
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "quic_pin")]
    pub(crate) quic_ca: Option<PathBuf>,

    /// Certificate of this client, for servers that want one over QUIC
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "quic_key")]
    pub(crate) quic_certificate: Option<PathBuf>,

    /// Key of this certificate; only its owner may be able to read it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "quic_certificate")]
    pub(crate) quic_key: Option<PathBuf>,

    /// Compress file data on its way: on, or auto while the link is slower than a
    /// processor core compresses; lengths of encrypted messages then tell how well
    /// the data compresses
    #[arg(long, value_name = "HOW", default_value = "off")]
    pub(crate) compress: CompressUse,

    /// Copy many small files over up to N sessions, each with its own
    /// connection, 1 to 16
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = parse_connections)]
    pub(crate) connections: usize,

    /// Time to wait for a lost server, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) patience: u64,

    /// Servers to which DFS links may lead; each of them learns the user's name
    #[arg(long, value_name = "WHERE", default_value = "anywhere")]
    pub(crate) dfs: DfsLinks,

    /// Domain controller to ask for a domain's DFS namespaces, if DNS does not
    /// find one by the domain's name
    #[arg(long, value_name = "HOST")]
    pub(crate) dc: Option<ServerName>,

    /// Address of the server, in place of those that DNS has; repeatable, one for
    /// each node of a cluster
    #[arg(long, value_name = "[HOST=]ADDRESS")]
    pub(crate) address: Vec<NodeAddress>,

    /// Do not register with another node of a cluster, which tells at once when the
    /// node in use is gone
    #[arg(long)]
    pub(crate) no_witness: bool,

    /// Say which connections are opened and lost, at which node of a cluster a
    /// share is, and at the end what each connection has carried
    #[arg(long)]
    pub(crate) verbose: bool,

    /// Write all messages to this file, decrypted, in the form that Wireshark and
    /// `frevo decode` read; it must not exist yet
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) capture: Option<PathBuf>,

    /// End the capture at this size (bytes; k, M, G)
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_capture_size)]
    pub(crate) capture_size: u64,

    /// Keep so many bytes of the data of each read and write in the capture (bytes; k),
    /// or all
    #[arg(long, value_name = "all|BYTES", default_value = "256", value_parser = parse_capture_data)]
    pub(crate) capture_data: CaptureData,

    /// Keep the answers and tickets of logons in the capture, and calls that carry
    /// passwords
    #[arg(long, requires = "capture")]
    pub(crate) capture_secrets: bool,

    /// Write results and errors as JSON, one object per line
    #[arg(long)]
    pub(crate) json: bool,
}

/// The options of all commands that copy files.
#[derive(Debug, Args)]
#[command(next_help_heading = "Copying")]
pub(crate) struct Copying {
    /// How to copy DOS attributes and creation times
    #[arg(long, value_name = "WHAT", default_value = "keep")]
    pub(crate) attributes: AttributePolicy,

    /// Copy symbolic links as links, if they are relative and lead to a place in the
    /// copied directory [default: skip links]
    #[arg(long, short = 'l')]
    pub(crate) links: bool,

    /// Limit the bandwidth (bytes/s; k, M, G)
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    pub(crate) bwlimit: Option<u64>,
}

/// The options of commands that keep files open.
#[derive(Debug, Args)]
#[command(next_help_heading = "Application")]
pub(crate) struct Application {
    /// Open files as an instance of the application with this id: the server closes
    /// what an earlier instance on another machine has open
    #[arg(long, value_name = "GUID")]
    app_instance: Option<AppInstance>,

    /// Version of the instance, later ones greater: N or HIGH.LOW, of 64 bits each;
    /// an earlier instance cannot open what a later one has open
    #[arg(long, value_name = "N", value_parser = parse_version, requires = "app_instance")]
    app_version: Option<AppVersion>,
}

/// The version of an application instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AppVersion {
    high: u64,
    low: u64,
}

impl Application {
    /// Returns the instance as which files are opened.
    pub(crate) fn instance(&self) -> Option<AppInstance> {
        let instance = self.app_instance?;
        Some(match self.app_version {
            Some(AppVersion { high, low }) => instance.version(high, low),
            None => instance,
        })
    }
}

/// The use of Kerberos.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KerberosUse {
    /// Never use NTLM
    Required,
    /// Use NTLM where Kerberos does not work, and say so
    Preferred,
    /// Never use Kerberos
    Off,
}

/// The use of SMB Direct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RdmaUse {
    /// Use TCP where SMB Direct does not work, and say so
    Auto,
    /// Never use TCP
    Required,
    /// Use TCP
    Off,
}

/// The use of SMB over QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QuicUse {
    /// Use QUIC where TCP does not reach the server
    Auto,
    /// Use QUIC alone
    Required,
    /// Use QUIC for smb+quic:// alone
    Off,
}

/// The data that is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompressUse {
    /// Compress on slow links, and where the server asks for it
    Auto,
    /// Compress all data that becomes smaller
    On,
    /// Compress nothing
    Off,
}

/// Where links of DFS namespaces may lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DfsLinks {
    /// Any server
    Anywhere,
    /// Other shares of the same server
    SameHost,
    /// Do not follow DFS links
    Never,
}

/// Ciphers by their usual names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CipherName {
    /// AES-128-GCM
    #[value(name = "aes-128-gcm")]
    Aes128Gcm,
    /// AES-128-CCM
    #[value(name = "aes-128-ccm")]
    Aes128Ccm,
    /// AES-256-GCM
    #[value(name = "aes-256-gcm")]
    Aes256Gcm,
    /// AES-256-CCM
    #[value(name = "aes-256-ccm")]
    Aes256Ccm,
}

/// Signing algorithms by their usual names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SigningName {
    /// AES-GMAC
    #[value(name = "aes-gmac")]
    AesGmac,
    /// AES-CMAC
    #[value(name = "aes-cmac")]
    AesCmac,
    /// HMAC-SHA256
    #[value(name = "hmac-sha256")]
    HmacSha256,
}

fn parse_connections(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=16).contains(count));
    count.ok_or_else(|| String::from("write a number from 1 to 16"))
}

/// A count of channels; 0 lets the client choose.
fn parse_channels(text: &str) -> Result<usize, String> {
    if text == "auto" {
        return Ok(0);
    }
    let count = text.parse().ok().filter(|count| (1..=32).contains(count));
    count.ok_or_else(|| String::from("write a number from 1 to 32, or auto"))
}

fn parse_version(text: &str) -> Result<AppVersion, String> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|one| one.is_ascii_digit());
        is_number.then(|| text.parse().ok()).flatten()
    };
    let (high, low) = text.split_once('.').unwrap_or(("0", text));
    let version = number(high).zip(number(low)).map(|(high, low)| AppVersion { high, low });
    version.ok_or_else(|| String::from("write a number, or two with a point between them"))
}

fn parse_rate(text: &str) -> Result<u64, String> {
    let rate = parse_size(text)?;
    if rate == 0 { Err(String::from("the rate must be more than 0")) } else { Ok(rate) }
}

/// A size of a capture file.
pub(crate) fn parse_capture_size(text: &str) -> Result<u64, String> {
    let bytes = Some(parse_size(text)?).filter(|bytes| *bytes >= CAPTURE_BYTES_MIN);
    bytes.ok_or_else(|| String::from("write a size of at least 64k"))
}

/// The data of files in a capture.
pub(crate) fn parse_capture_data(text: &str) -> Result<CaptureData, String> {
    if text == "all" {
        return Ok(CaptureData::Whole);
    }
    let bytes = usize::try_from(parse_size(text)?).ok().filter(|bytes| *bytes <= DATA_BYTES_MAX);
    let bytes = bytes.ok_or_else(|| String::from("write a size of at most 128k, or all"))?;
    Ok(CaptureData::First(bytes))
}

#[cfg(test)]
mod tests {
    use frevo_client::capture::CaptureData;

    use super::{
        AppVersion, parse_capture_data, parse_capture_size, parse_channels, parse_version,
    };

    #[test]
    fn a_capture_has_at_least_64_kib_and_256_mib_by_default() {
        assert_eq!(parse_capture_size("64k"), Ok(64 << 10));
        assert_eq!(parse_capture_size("256M"), Ok(frevo_client::capture::CAPTURE_BYTES));
        for text in ["0", "65535", "-1", "many"] {
            assert!(parse_capture_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_capture_has_256_bytes_of_data_by_default_and_all_if_asked() {
        assert_eq!(parse_capture_data("256"), Ok(CaptureData::default()));
        assert_eq!(parse_capture_data("all"), Ok(CaptureData::Whole));
        assert_eq!(parse_capture_data("0"), Ok(CaptureData::First(0)));
        assert_eq!(parse_capture_data("128k"), Ok(CaptureData::First(128 << 10)));
        for text in ["129k", "ALL", "-1", "many"] {
            assert!(parse_capture_data(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_version_has_one_number_or_two() {
        for (text, high, low) in
            [("7", 0, 7), ("3.0", 3, 0), ("18446744073709551615.1", u64::MAX, 1)]
        {
            assert_eq!(parse_version(text), Ok(AppVersion { high, low }));
        }
        for text in ["", ".", "1.", ".1", "1.2.3", "-1", "+1", "18446744073709551616", "v1"] {
            assert!(parse_version(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_session_has_up_to_32_channels() {
        for (text, channels) in [("auto", 0), ("1", 1), ("17", 17), ("32", 32)] {
            assert_eq!(parse_channels(text), Ok(channels));
        }
        for text in ["0", "33", "", "many"] {
            assert!(parse_channels(text).is_err(), "{text}");
        }
    }
}
