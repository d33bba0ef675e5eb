//! A network namespace of the client, with links of a given rate to the namespace of this process.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Variable that says in which namespace this process was started again.
const INSIDE: &str = "FREVO_BENCH_NETNS";
/// Bytes that a link sends at once after a pause, and bytes that wait for it at most.
const BURST: &str = "256kb";
const QUEUE: &str = "1mb";
/// A hardware address that nobody has.
const NOBODY: &str = "02:00:00:00:99:99";

/// Returns true if this process has a network namespace of its own. Otherwise runs the program again
/// in one, with the same arguments, and returns its end.
pub(crate) fn inside() -> Result<Option<std::process::ExitStatus>> {
    let own = std::fs::read_link("/proc/self/ns/net")?;
    if std::env::var_os(INSIDE).is_some_and(|before| before != own.as_os_str()) {
        ip(None, &["link", "set", "lo", "up"])?;
        return Ok(None);
    }
    // The server reads link speeds from /sys, which shows the network namespace in which it was
    // mounted. So /sys is mounted again in the new namespace.
    let status = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private", "--"])
        .args(["sh", "-c", "mount -t sysfs sysfs /sys && exec \"$@\"", "sh"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, own)
        .status()
        .context("starting unshare")?;
    Ok(Some(status))
}

/// The client's namespace. Dropping it ends the namespace and its links.
pub(crate) struct Links {
    keeper: Child,
    /// The namespace lasts until this is closed.
    input: Option<ChildStdin>,
    addresses: Vec<String>,
}

impl Links {
    /// Makes a link of each rate, in both directions, in the words of tc: `1gbit`.
    pub(crate) fn new(rates: &[impl AsRef<str>]) -> Result<Self> {
        let mut keeper = Command::new("unshare")
            .args(["--net", "--", "sh", "-c", "ip link set lo up; echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting unshare")?;
        let output = keeper.stdout.take().context("the keeper's output")?;
        BufReader::new(output).read_line(&mut String::new())?;
        let input = keeper.stdin.take();
        let mut links = Self { keeper, input, addresses: Vec::new() };
        for (n, rate) in rates.iter().enumerate() {
            links.add(n, rate.as_ref())?;
        }
        Ok(links)
    }

    fn add(&mut self, n: usize, rate: &str) -> Result<()> {
        let pid = self.pid();
        let (here, there) = (format!("bench{n}"), format!("end{n}"));
        let (server, client) = (format!("198.18.{n}.1"), format!("198.18.{n}.2"));
        let netns = pid.to_string();
        ip(None, &["link", "add", &here, "type", "veth", "peer", "name", &there, "netns", &netns])?;
        for (within, address, device) in [(None, &server, &here), (Some(pid), &client, &there)] {
            ip(within, &["addr", "add", &format!("{address}/24"), "dev", device])?;
            ip(within, &["link", "set", device, "up"])?;
            let shape = ["qdisc", "add", "dev", device, "root", "tbf"];
            let terms = ["rate", rate, "burst", BURST, "limit", QUEUE];
            run(within, "tc", &[&shape[..], &terms[..]].concat())?;
        }
        self.addresses.push(server);
        Ok(())
    }

    /// Delays the packets of a link in both directions, and loses some. Packets that were sent together are
    /// lost one by one.
    pub(crate) fn lose(&self, n: usize, rate: &str, delay: &str, loss: &str) -> Result<()> {
        for (within, device) in [(None, format!("bench{n}")), (Some(self.pid()), format!("end{n}"))]
        {
            // A burst below two packets has the kernel take apart what was sent together.
            let shape = ["qdisc", "replace", "dev", &device, "root", "handle", "1:", "tbf"];
            let terms = ["rate", rate, "burst", "5kb", "limit", QUEUE];
            run(within, "tc", &[&shape[..], &terms[..]].concat())?;
            let lossy = ["qdisc", "add", "dev", &device, "parent", "1:1", "handle", "10:", "netem"];
            let terms = ["delay", delay, "loss", loss, "limit", "1200"];
            run(within, "tc", &[&lossy[..], &terms[..]].concat())?;
        }
        Ok(())
    }

    /// Lets all packets of a link vanish, at both ends.
    pub(crate) fn cut(&self, n: usize) -> Result<()> {
        self.at_both_ends(n, &["replace"], &["lladdr", NOBODY, "nud", "permanent"])
    }

    /// Lets a link that was cut work again.
    pub(crate) fn mend(&self, n: usize) -> Result<()> {
        self.at_both_ends(n, &["del"], &[])
    }

    fn at_both_ends(&self, n: usize, verb: &[&str], terms: &[&str]) -> Result<()> {
        for (within, peer, device) in
            [(None, 2, format!("bench{n}")), (Some(self.pid()), 1, format!("end{n}"))]
        {
            let peer = format!("198.18.{n}.{peer}");
            ip(within, &[&["neigh"], verb, &[&*peer, "dev", &*device], terms].concat())?;
        }
        Ok(())
    }

    /// Returns the bytes that the server has sent over a link so far.
    pub(crate) fn sent_bytes(&self, n: usize) -> Result<u64> {
        let devices = std::fs::read_to_string("/proc/self/net/dev")?;
        let name = format!("bench{n}:");
        let line = devices.lines().find_map(|line| line.trim_start().strip_prefix(&*name));
        let sent = line.and_then(|line| line.split_ascii_whitespace().nth(8)?.parse().ok());
        sent.with_context(|| format!("no figures of {name}"))
    }

    fn pid(&self) -> u32 {
        self.keeper.id()
    }

    /// Returns the server's address on the first link.
    pub(crate) fn address(&self) -> Result<&str> {
        Ok(self.addresses.first().context("there is no link")?)
    }

    /// Returns a command that runs `program` as the client.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.pid().to_string(), "--net", "--"]).arg(program);
        command
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if let Some(mut input) = self.input.take() {
            let _ = input.flush();
        }
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

fn ip(within: Option<u32>, arguments: &[&str]) -> Result<()> {
    run(within, "ip", arguments)
}

fn run(within: Option<u32>, program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = match within {
        Some(pid) => {
            let mut command = Command::new("nsenter");
            command.args(["--target", &pid.to_string(), "--net", "--", program]);
            command
        }
        None => Command::new(program),
    };
    let done = command.args(arguments).output().with_context(|| format!("starting {program}"))?;
    ensure!(
        done.status.success(),
        "{program} {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&done.stderr).trim()
    );
    Ok(())
}
