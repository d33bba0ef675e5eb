//! What a program takes from start to end, as the kernel counts it.
//!
//! `frevo-bench usage FILE PROGRAM ARG...` runs a program and writes down what it
//! took. It is a process of its own because a child's greatest resident set begins
//! with that of whoever started it, and the tool itself may have grown.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use wait4::Wait4;

use crate::proc;

/// Until a server has noticed that its client has gone, and reaped what served it.
const SERVER_SETTLES: Duration = Duration::from_millis(60);

/// One run of one program.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(super) struct Usage {
    /// From its start to its end.
    pub(super) seconds: f64,
    /// User and system time.
    pub(super) cpu_seconds: f64,
    /// Greatest resident set.
    pub(super) peak_kib: u64,
    /// User and system time of the server's process tree meanwhile.
    #[serde(default)]
    pub(super) server_cpu_seconds: f64,
}

/// The wrapper's side.
pub(crate) fn watch(report: &Path, program: &[OsString]) -> Result<()> {
    let (name, arguments) = program.split_first().context("no program")?;
    let start = Instant::now();
    let mut child = Command::new(name)
        .args(arguments)
        .spawn()
        .with_context(|| format!("starting {}", name.display()))?;
    let ended = child.wait4()?;
    let usage = Usage {
        seconds: start.elapsed().as_secs_f64(),
        cpu_seconds: (ended.rusage.utime + ended.rusage.stime).as_secs_f64(),
        peak_kib: ended.rusage.maxrss >> 10,
        server_cpu_seconds: 0.0,
    };
    ensure!(ended.status.success(), "{} ended with {}", name.display(), ended.status);
    std::fs::write(report, serde_json::to_vec(&usage)?)?;
    Ok(())
}

/// A program with its arguments and what it finds around it.
#[derive(Debug, Clone, Default)]
pub(super) struct Invocation {
    pub(super) program: OsString,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(String, String)>,
}

impl Invocation {
    pub(super) fn new(program: impl Into<OsString>) -> Self {
        Self { program: program.into(), ..Self::default() }
    }

    pub(super) fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(super) fn args<T: Into<OsString>>(mut self, all: impl IntoIterator<Item = T>) -> Self {
        self.arguments.extend(all.into_iter().map(Into::into));
        self
    }

    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it; what it prints goes to `output`. `server` is the root of the tree whose
    /// time is counted beside.
    pub(super) fn run(&self, server: u32, scratch: &Path, output: &Path) -> Result<Usage> {
        let report = scratch.join("usage.json");
        let complaints = scratch.join("complaints");
        let before = proc::cpu_seconds(server);
        let status = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(std::env::current_exe()?)
            .arg("usage")
            .arg(&report)
            .arg(&self.program)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(File::create(output)?)
            .stderr(File::create(&complaints)?)
            .status()
            .context("starting setpriv")?;
        if !status.success() {
            let said = std::fs::read_to_string(&complaints).unwrap_or_default();
            let printed = std::fs::read(output).unwrap_or_default();
            let printed = String::from_utf8_lossy(&printed);
            let printed: String = printed.chars().take(500).collect();
            bail!("{}: {}{printed}", self.program.display(), said.trim());
        }
        std::thread::sleep(SERVER_SETTLES);
        let mut usage: Usage = serde_json::from_slice(&std::fs::read(&report)?)?;
        usage.server_cpu_seconds = proc::cpu_seconds(server) - before;
        Ok(usage)
    }
}
