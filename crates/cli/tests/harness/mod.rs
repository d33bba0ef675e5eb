//! The real binary, in a folder of its own.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod etcd;
pub mod netdfs;
pub mod relay;
pub mod world;

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Ports of a process, of which it holds the first one so that no other process takes these.
const BLOCK: u16 = 200;

/// Returns a free port below those that the kernel gives to sockets without one: nobody takes it before the
/// program that is told of it does, or while that program is down.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    static OWN: LazyLock<(TcpListener, u16)> = LazyLock::new(|| {
        let mut blocks = (0..20_000 / BLOCK).map(|block| 10_000 + block * BLOCK);
        blocks
            .find_map(|first| Some((TcpListener::bind(("127.0.0.1", first)).ok()?, first)))
            .unwrap()
    });
    loop {
        let port = OWN.1 + 1 + NEXT.fetch_add(1, Ordering::Relaxed) % (BLOCK - 1);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A user that is nobody's.
const NOBODY: u32 = 65_534;

/// A folder with the program's home in it.
pub struct Sandbox {
    folder: tempfile::TempDir,
}

/// The output and exit code of a run of the program.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Sandbox {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    pub fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// The program, at home here and with nothing else in its environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_frevo"));
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("HOME", self.folder.path()).env("USER", "ann").env("PATH", "/usr/bin:/bin");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The same without root's privileges, which tests in a container have.
    pub fn unprivileged(&self, arguments: &[&str]) -> Command {
        if fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).unwrap() != 0
        {
            return self.command(arguments);
        }
        // Other users may not reach the build folder, so the program is copied.
        let copy = self.path("frevo");
        if !copy.exists() {
            // `cp` makes the copy, because if this process had it open for writing, a child of
            // another test could inherit the descriptor, and the copy could not be executed
            // (ETXTBSY).
            let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_frevo")).arg(&copy).status();
            assert!(copied.unwrap().success());
        }
        fs::set_permissions(self.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(copy);
        command.args(arguments).current_dir("/").env_clear().env("USER", "ann");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.uid(NOBODY).gid(NOBODY);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().unwrap())
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Said {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        // A program that needs no input may have ended without reading it, which is no error.
        match child.stdin.take().unwrap().write_all(input.as_bytes()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            other => other.unwrap(),
        }
        said(child.wait_with_output().unwrap())
    }

    /// Starts a server and waits until it is ready.
    pub fn serve(&self, arguments: &[&str]) -> Serving {
        let arguments: Vec<&str> = ["serve"].iter().chain(arguments).copied().collect();
        Serving::start(self.command(&arguments))
    }
}

pub fn said(output: Output) -> Said {
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Said {
    /// The program failed, with this code and these words.
    #[track_caller]
    pub fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} not in {}", self.err);
        }
        assert!(self.err.starts_with("frevo: ") || self.err.starts_with("error: "), "{}", self.err);
        // The error message should be one sentence, not a whole screen.
        assert!(self.err.len() < 1_000, "{}", self.err);
    }

    #[track_caller]
    pub fn succeeds(&self) -> &str {
        assert_eq!(self.code, 0, "{self:?}");
        &self.out
    }
}

/// A server that runs; it is killed when the test ends.
pub struct Serving {
    child: Child,
    /// The output before `ready`.
    pub screen: String,
    pub address: String,
}

impl Serving {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut screen = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            match lines.next() {
                Some(Ok(line)) if line == "ready" => break,
                Some(line) => screen.push_str(&format!("{}\n", line.unwrap())),
                None => panic!("not ready: {screen}{:?}", said(child.wait_with_output().unwrap())),
            }
        }
        let address = screen.split("smb://").nth(1).map(|url| {
            let authority = url.split(['/', '\n']).next().unwrap();
            authority.rsplit('@').next().unwrap().to_owned()
        });
        Self { child, screen, address: address.unwrap_or_default() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Waits for its end and for what it logged.
    pub fn finish(mut self) -> Said {
        let began = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut err = String::new();
        // `stderr` is None if the test has redirected it to a file.
        if let Some(mut stderr) = self.child.stderr.take() {
            std::io::Read::read_to_string(&mut stderr, &mut err).unwrap();
        }
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        Said { code, out: std::mem::take(&mut self.screen), err }
    }

    pub fn stop(self) -> Said {
        self.signal("-TERM");
        self.finish()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // If the process has ended already, `kill` fails, which does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
