//! An etcd of one member, and servers with and without a cluster.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::bare::Gateway;
use crate::server::{self, Kind, Peer, Programs};

/// The longest time until etcd answers.
const START: Duration = Duration::from_secs(20);

/// An etcd on ports of its own; stopped when dropped.
pub(super) struct Etcd {
    child: Child,
    /// Where it answers clients.
    pub(super) address: String,
}

impl Etcd {
    /// Starts it with an empty folder below `scratch`.
    pub(super) fn start(program: &Path, scratch: &Path) -> Result<Self> {
        let folder = scratch.join("etcd");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir(&folder)?;
        let address = format!("127.0.0.1:{}", server::free_port()?);
        let (client, peer) =
            (format!("http://{address}"), format!("http://127.0.0.1:{}", server::free_port()?));
        let log = fs::File::create(folder.join("log"))?;
        let child = server::command(program)
            .args(["--name", "one"])
            .arg("--data-dir")
            .arg(folder.join("data"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}")])
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting etcd (Debian has it in etcd-server)")?;
        let etcd = Self { child, address };
        let end = Instant::now() + START;
        while !etcd.answers() {
            if Instant::now() > end {
                bail!("etcd does not answer");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(etcd)
    }

    fn answers(&self) -> bool {
        TcpStream::connect(&self.address).is_ok()
            && Gateway::connect(&self.address).and_then(|mut one| one.commit(1, 1)).is_ok()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The servers of a measurement.
pub(super) struct Site<'a> {
    pub(super) programs: &'a Programs,
    pub(super) scratch: &'a Path,
    /// The folder of the shares.
    pub(super) folder: &'a Path,
    /// Their names.
    pub(super) shares: &'a [String],
}

impl Site<'_> {
    /// A server with the embedded store.
    pub(super) fn alone(&self, label: &str) -> Result<Peer> {
        self.start(label, "", "")
    }

    /// A node of the cluster. Nobody fences: the next owner waits once more for a lease's time.
    pub(super) fn node(&self, label: &str, etcd: &Etcd) -> Result<Peer> {
        let cluster = format!(
            "[cluster]\nname = \"bench\"\nnode = \"{label}\"\nendpoints = [\"http://{}\"]\n",
            etcd.address
        );
        self.start(label, &cluster, "cluster = true\nfence = \"none\"\n")
    }

    fn start(&self, label: &str, cluster: &str, keys: &str) -> Result<Peer> {
        // Lines about clients that ask again and again would crowd out the others.
        let mut text = format!(
            "[server]\ndiscovery = \"off\"\nlog_level = \"warn,frevo::cluster=info\"\n{cluster}"
        );
        for (nth, share) in self.shares.iter().enumerate() {
            // The first of several shares is each node's own, for logons.
            let is_lone = self.shares.len() == 1;
            let is_own = !is_lone && nth == 0;
            let folder = match is_own {
                true => self.scratch.join(format!("own-{label}")),
                false if is_lone => self.folder.to_owned(),
                false => self.folder.join(share),
            };
            fs::create_dir_all(&folder)?;
            let keys = if is_own { "" } else { keys };
            text.push_str(&format!(
                "[[share]]\nname = \"{share}\"\npath = {folder:?}\ncontinuous = {}\n{keys}",
                !is_own
            ));
        }
        let path = self.scratch.join(format!("{label}.toml"));
        fs::write(&path, text)?;
        let mut programs = self.programs.clone();
        programs.is_share_configured = true;
        programs.frevo_args.extend(["--config".to_owned(), path.display().to_string()]);
        server::start(Kind::Frevo, label, self.folder, self.scratch, &programs)
    }

    /// The log of a server.
    pub(super) fn log_of(&self, label: &str) -> PathBuf {
        self.scratch.join(format!("state-{label}")).join("log")
    }
}
