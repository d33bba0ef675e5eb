//! A server that the program's commands are tried against.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Said, Sandbox, Serving, free_port, said, text};

/// A server of the folder `share`, with an account and its password.
pub struct World {
    pub place: Sandbox,
    server: Option<Serving>,
    /// Further arguments of the server.
    pub more: Vec<String>,
    pub address: String,
}

impl World {
    pub fn new() -> Self {
        Self::with(&[])
    }

    /// A server that is told `more`.
    pub fn with(more: &[&str]) -> Self {
        let place = Sandbox::new();
        place.folder("share");
        place.file("password", "secret", 0o600);
        let more = more.iter().map(|word| String::from(*word)).collect();
        let address = format!("127.0.0.1:{}", free_port());
        let mut world = Self { place, server: None, more, address };
        world.start();
        world
    }

    /// Starts the server, at the same port as before if there was one.
    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    /// Starts a server that takes the place of the one that runs. Returns what that has said.
    pub fn replace(&mut self) -> Said {
        let old = self.server.take().unwrap();
        self.start_with(&["--replace", &old.pid().to_string()]);
        old.finish()
    }

    /// Stops the server, as SIGTERM does.
    pub fn stop(&mut self) -> Said {
        self.server.take().unwrap().stop()
    }

    fn start_with(&mut self, more: &[&str]) {
        let (folder, password) = (self.place.path("share"), self.place.path("password"));
        let state = self.place.path("state");
        let mut arguments = vec![
            text(&folder),
            "--listen",
            &self.address,
            "--user",
            "ann",
            "--password-file",
            text(&password),
            "--state-dir",
            text(&state),
        ];
        arguments.extend(self.more.iter().map(String::as_str).chain(more.iter().copied()));
        let server = self.place.serve(&arguments);
        self.address.clone_from(&server.address);
        self.server = Some(server);
    }

    /// As `kill -9` does.
    pub fn kill(&mut self) {
        let server = self.server.take().unwrap();
        server.signal("-KILL");
        server.finish();
    }

    pub fn url(&self, path: &str) -> String {
        format!("smb://ann@{}/share/{path}", self.address)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        command.env("FREVO_PASSWORD", "secret");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Said {
        said(self.command(arguments).output().unwrap())
    }

    /// Does something in the share by the client library.
    pub fn in_share<T>(&self, work: impl AsyncFnOnce(&frevo_client::Share) -> T) -> T {
        use frevo_client::{Client, Credentials, ServerName};
        let (host, port) = self.address.rsplit_once(':').unwrap();
        let server = ServerName::new(host).at_port(port.parse().unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let user = Credentials::new("ann", "secret");
            let session = Client::default().connect(server, user).await.unwrap();
            let share = session.share("share").await.unwrap();
            let done = work(&share).await;
            share.log_off().await;
            done
        })
    }

    pub fn there(&self, path: &str) -> PathBuf {
        self.place.path("share").join(path)
    }
}

/// Two folders hold the same.
#[track_caller]
pub fn assert_same(a: &Path, b: &Path) {
    let out = Command::new("diff").arg("-r").arg(a).arg(b).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}
