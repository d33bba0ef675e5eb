//! An etcd of its own for a test.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{Sandbox, free_port};

/// Ports that are free, and differ.
pub fn free_ports<const N: usize>() -> [u16; N] {
    [0; N].map(|_| free_port())
}

/// An etcd of one member, on a port of its own.
pub struct Etcd {
    program: String,
    place: PathBuf,
    ports: [u16; 2],
    child: Option<Child>,
}

impl Etcd {
    /// Starts etcd. None where it is not installed: the test ends, with a line that says so.
    pub fn start(place: &Sandbox, folder: &str) -> Option<Self> {
        let program = std::env::var("FREVO_ETCD").unwrap_or_else(|_| "etcd".into());
        let version = Command::new(&program).arg("--version").output();
        if !version.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: there is no program {program}; Debian has it in etcd-server");
            return None;
        }
        let ports = free_ports();
        let mut etcd = Self { program, place: place.folder(folder), ports, child: None };
        etcd.begin();
        Some(etcd)
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    pub fn begin(&mut self) {
        let (client, peer) = (self.url(), format!("http://127.0.0.1:{}", self.ports[1]));
        let log = fs::File::create(self.place.join("log")).unwrap();
        let child = Command::new(&self.program)
            .args(["--name", "e"])
            .arg("--data-dir")
            .arg(self.place.join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("e={peer}")])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.child = Some(child.unwrap());
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}
