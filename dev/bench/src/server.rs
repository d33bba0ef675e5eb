//! Starts and stops the measured servers: smbd, Frevo, and the bare data path.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Most time until a server accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Smbd,
    Frevo,
    /// The bare data path; see `raw`.
    #[value(skip)]
    Limit,
    /// The bare data path for the frames of the load; see `load::bare`.
    #[value(skip)]
    Bare,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Smbd => "smbd",
            Self::Frevo => "Frevo",
            Self::Limit => "limit",
            Self::Bare => "bare",
        }
    }
}

/// The paths of the programs, and the account.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) frevo: PathBuf,
    pub(crate) frevo_args: Vec<String>,
    /// True if `frevo_args` name a configuration with the share.
    pub(crate) is_share_configured: bool,
    pub(crate) smbd: PathBuf,
    /// Lines for smbd's `[global]`.
    pub(crate) smbd_conf: Vec<String>,
    /// The account of this machine that smbd uses.
    pub(crate) account: String,
}

/// The address and the account for a client.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) addr: String,
    pub(crate) user: String,
    pub(crate) password: String,
}

/// A running server; stopped when dropped.
pub(crate) struct Peer {
    pub(crate) kind: Kind,
    /// A name that is unique in a run.
    pub(crate) label: String,
    pub(crate) target: Target,
    /// The programs that it was started from.
    pub(crate) programs: Programs,
    /// The folder that it shares.
    pub(crate) share: PathBuf,
    child: Child,
}

impl Peer {
    /// Returns the root of the server's process tree.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // The child is the first process of smbd's PID namespace, so when it is killed, the kernel
        // kills all others in the namespace.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn start(
    kind: Kind,
    label: &str,
    share: &Path,
    scratch: &Path,
    programs: &Programs,
) -> Result<Peer> {
    start_on(free_port()?, kind, label, share, scratch, programs)
}

/// Starts a server that listens on `host`.
pub(crate) fn start_at(
    host: &str,
    kind: Kind,
    label: &str,
    share: &Path,
    scratch: &Path,
    programs: &Programs,
) -> Result<Peer> {
    start_with(format!("{host}:{}", free_port()?), kind, label, share, scratch, programs)
}

/// Returns SMB's own port if it is free, for clients that know no other; otherwise any port.
pub(crate) fn well_known_port() -> u16 {
    const SMB: u16 = 445;
    let is_free = TcpListener::bind(("127.0.0.1", SMB)).is_ok();
    if is_free { SMB } else { free_port().unwrap_or(0) }
}

pub(crate) fn start_on(
    port: u16,
    kind: Kind,
    label: &str,
    share: &Path,
    scratch: &Path,
    programs: &Programs,
) -> Result<Peer> {
    start_with(format!("127.0.0.1:{port}"), kind, label, share, scratch, programs)
}

fn start_with(
    addr: String,
    kind: Kind,
    label: &str,
    share: &Path,
    scratch: &Path,
    programs: &Programs,
) -> Result<Peer> {
    let state = scratch.join(format!("state-{label}"));
    if state.exists() {
        fs::remove_dir_all(&state)?;
    }
    fs::create_dir(&state)?;
    let mut target = Target { addr, user: programs.account.clone(), password: password()? };
    let label = label.to_owned();
    let child = match kind {
        Kind::Smbd => start_smbd(&target, share, &state, programs)?,
        Kind::Frevo => start_frevo(&target, share, &state, programs)?,
        Kind::Limit => start_own("raw-server", &mut target, share)?,
        Kind::Bare => start_own("bare-server", &mut target, share)?,
    };
    Ok(Peer { kind, label, target, programs: programs.clone(), share: share.to_owned(), child })
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn password() -> Result<String> {
    let mut random = [0u8; 12];
    getrandom::fill(&mut random).map_err(|e| anyhow::anyhow!("no random bytes: {e}"))?;
    Ok(random.iter().map(|b| format!("{b:02x}")).collect())
}

/// Returns a command whose process ends when this process ends for any reason.
pub(crate) fn command(program: &Path) -> Command {
    let mut c = Command::new("setpriv");
    c.args(["--pdeathsig", "KILL", "--"]).arg(program).stdin(Stdio::null());
    c
}

/// Starts `frevo serve`, which prints a line "ready".
fn start_frevo(target: &Target, share: &Path, state: &Path, programs: &Programs) -> Result<Child> {
    ensure!(
        programs.frevo.exists(),
        "no frevo at {}: build it (cargo build --release) or name it with --frevo",
        programs.frevo.display()
    );
    let secret = state.join("password");
    fs::write(&secret, &target.password)?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    let log = fs::File::create(state.join("log"))?;
    let mut command = command(&programs.frevo);
    command.arg("serve");
    if !programs.is_share_configured {
        command.arg("--name").arg(format!("share={}", share.display()));
    }
    let mut child = command
        .args(["--listen", &target.addr, "--user", &target.user])
        .arg("--password-file")
        .arg(&secret)
        .args(["--encryption", "offered", "--signing", "offered"])
        .arg("--state-dir")
        .arg(state)
        .args(&programs.frevo_args)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .context("starting frevo (and setpriv)")?;
    let stdout = child.stdout.take().context("frevo's standard output")?;
    let (said, ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(stdout);
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|n| n > 0) {
            if line.trim() == "ready" {
                let _ = said.send(());
            }
            line.clear();
        }
    });
    if ready.recv_timeout(START_TIMEOUT).is_err() {
        let _ = child.kill();
        let _ = child.wait();
        bail!("frevo did not become ready:\n{}", tail(&state.join("log")));
    }
    Ok(child)
}

/// Starts a server that is a hidden command of this program.
fn start_own(name: &str, target: &mut Target, share: &Path) -> Result<Child> {
    let own = std::env::current_exe()?;
    let mut child = command(&own)
        .arg(name)
        .arg(share)
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the raw server (and setpriv)")?;
    let stdout = child.stdout.take().context("the server's standard output")?;
    let mut addr = String::new();
    BufReader::new(stdout).read_line(&mut addr)?;
    target.addr = addr.trim().to_owned();
    ensure!(!target.addr.is_empty(), "the raw server did not start");
    Ok(child)
}

/// Starts smbd with all of its state under `state`. Its helper processes leave its process group,
/// so a PID namespace keeps them together.
fn start_smbd(target: &Target, share: &Path, state: &Path, programs: &Programs) -> Result<Child> {
    for sub in ["state", "cache", "lock", "private", "pid", "ncalrpc"] {
        fs::create_dir(state.join(sub))?;
    }
    fs::set_permissions(state.join("ncalrpc"), fs::Permissions::from_mode(0o755))?;
    let conf = state.join("smb.conf");
    let port = target.addr.rsplit(':').next().context("a port")?;
    fs::write(&conf, smb_conf(port, share, state, &programs.smbd_conf))?;
    let mut smbpasswd = Command::new("smbpasswd")
        .arg("-c")
        .arg(&conf)
        .args(["-L", "-s", "-a", &target.user])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("smbpasswd")?;
    let mut input = smbpasswd.stdin.take().context("smbpasswd's standard input")?;
    write!(input, "{0}\n{0}\n", target.password)?;
    drop(input);
    let done = smbpasswd.wait_with_output()?;
    ensure!(done.status.success(), "smbpasswd: {}", String::from_utf8_lossy(&done.stderr).trim());
    let log = fs::File::create(state.join("out"))?;
    let mut child = command(Path::new("unshare"))
        .args(["--pid", "--fork", "--kill-child"])
        .arg(&programs.smbd)
        .args(["--foreground", "--no-process-group", "-s"])
        .arg(&conf)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("starting smbd (and setpriv, unshare)")?;
    let deadline = Instant::now() + START_TIMEOUT;
    while TcpStream::connect(&target.addr).is_err() {
        if child.try_wait()?.is_some() || Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            bail!(
                "smbd did not come up (it needs root):\n{}{}",
                tail(&state.join("out")),
                tail(&state.join("log"))
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(child)
}

/// Returns Samba's defaults, except for paths and features that this machine lacks.
fn smb_conf(port: &str, share: &Path, state: &Path, extra: &[String]) -> String {
    let d = state.display();
    let extra: String = extra.iter().map(|l| format!("    {l}\n")).collect();
    format!(
        "[global]
    server role = standalone server
    netbios name = BENCH
    disable netbios = yes
    smb ports = {port}
    interfaces = 127.0.0.1
    bind interfaces only = yes
    lock directory = {d}/lock
    state directory = {d}/state
    cache directory = {d}/cache
    pid directory = {d}/pid
    private dir = {d}/private
    ncalrpc dir = {d}/ncalrpc
    passdb backend = tdbsam:{d}/private/passdb.tdb
    log file = {d}/log
    log level = 0
    load printers = no
    printing = bsd
    printcap name = /dev/null
    disable spoolss = yes
    map to guest = never
{extra}[share]
    path = {}
    read only = no
",
        share.display()
    )
}

fn tail(path: &Path) -> String {
    let mut text = String::new();
    if let Ok(mut file) = fs::File::open(path) {
        let _ = file.read_to_string(&mut text);
    }
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

/// Returns the first line of `program --version`.
pub(crate) fn version(program: &Path) -> String {
    Command::new(program)
        .arg("--version")
        .output()
        .ok()
        .and_then(|o| Some(String::from_utf8_lossy(&o.stdout).lines().next()?.trim().to_owned()))
        .unwrap_or_else(|| "of unknown version".to_owned())
}
