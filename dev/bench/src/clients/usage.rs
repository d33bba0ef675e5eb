//! The resources that a program takes from start to end, as counted by the kernel.
//!
//! `frevo-bench usage FILE PROGRAM ARG...` runs a program and writes down its usage. It is a
//! process of its own: a child's peak resident set begins with that of its parent, and the tool
//! itself may have grown.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use wait4::Wait4;

use crate::proc;

/// Time for a server to notice the end of its client and to reap its processes.
const SERVER_SETTLES: Duration = Duration::from_millis(60);

/// The usage of one run of a program.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(super) struct Usage {
    /// Duration from start to end.
    pub(super) seconds: f64,
    /// User and system time, seconds.
    pub(super) cpu_seconds: f64,
    /// Peak resident set size, KiB.
    pub(super) peak_kib: u64,
    /// User and system time of the server's process tree during the run, seconds.
    #[serde(default)]
    pub(super) server_cpu_seconds: f64,
}

/// Runs the program as the wrapper process, and writes its usage to `report`.
pub(crate) fn watch(report: &Path, program: &[OsString]) -> Result<()> {
    let (name, arguments) = program.split_first().context("no program is given")?;
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

/// A program with its arguments and its environment.
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

    /// Runs the program; its output goes to `output`. Also counts the core time of the process tree
    /// of `server`.
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
