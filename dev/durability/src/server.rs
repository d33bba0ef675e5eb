//! The server: a process that is killed and restarted with its remaining state.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::machine::{Address, PASSWORD, SHARES, USER, configuration};

/// The server's folder and its process.
#[derive(Debug)]
pub(crate) struct Server {
    program: PathBuf,
    dir: PathBuf,
    port: u16,
    running: Option<(Child, BufReader<ChildStdout>)>,
}

/// Returns a free port below those that the kernel gives to sockets without one: nobody takes it while the
/// server is down.
fn free_port() -> Result<u16> {
    let first = 10_000 + u16::try_from(std::process::id() % 10_000)?;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (first..first + 10_000).find(is_free).context("no port is free")
}

impl Server {
    /// Prepares `dir` for `program`, with a free port.
    pub(crate) fn new(program: &Path, dir: &Path) -> Result<Self> {
        let program = program.canonicalize().with_context(|| format!("{}", program.display()))?;
        let port = free_port()?;
        let server = Self { program, dir: dir.into(), port, running: None };
        for (share, _) in SHARES {
            std::fs::create_dir_all(server.folder(share))?;
        }
        std::fs::create_dir_all(dir.join("state"))?;
        let config = configuration(&format!("127.0.0.1:{port}"), dir);
        std::fs::write(dir.join("frevo.toml"), config)?;
        let mut add = Command::new(&server.program)
            .args(["user", "--state-dir"])
            .arg(dir.join("state"))
            .args(["add", USER, "--password-stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        if let Some(mut input) = add.stdin.take() {
            writeln!(input, "{PASSWORD}")?;
        }
        if !add.wait()?.success() {
            bail!("frevo user add failed");
        }
        Ok(server)
    }

    pub(crate) const fn address(&self) -> Address {
        Address { host: "127.0.0.1", port: self.port }
    }

    /// Returns the folder of a share.
    pub(crate) fn folder(&self, share: &str) -> PathBuf {
        self.dir.join(share)
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Starts it and waits until it is ready.
    pub(crate) fn start(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut child = Command::new(&self.program)
            .args(["serve", "--config"])
            .arg(self.dir.join("frevo.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let output = child.stdout.take().context("the server's output")?;
        let mut output = BufReader::new(output);
        self.running = None;
        let mut line = String::new();
        loop {
            line.clear();
            if output.read_line(&mut line)? == 0 {
                let status = child.wait()?;
                bail!("the server did not start: {status}; see {}", self.log().display());
            }
            if line.trim_end() == "ready" {
                break;
            }
        }
        self.running = Some((child, output));
        Ok(())
    }

    /// Kills the server with SIGKILL and waits for the end of the process.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let (mut child, _) = self.running.take().context("no server is running")?;
        if let Some(status) = child.try_wait()? {
            bail!("the server ended by itself: {status}; see {}", self.log().display());
        }
        child.kill()?;
        child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((mut child, _)) = self.running.take() {
            // If the process has ended already, `kill` fails, which does not matter.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
