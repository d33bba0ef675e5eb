//! Fences and addresses of a real kernel, in namespaces of their own. They need root; without it each
//! test says that it is skipped.

use std::process::Command;

mod addresses;
mod fuse;

/// Runs a test of this program again in new namespaces. True inside of them.
pub(crate) fn is_inside(test: &str, namespaces: &[&str]) -> bool {
    if std::env::var_os("FREVO_INSIDE").is_some() {
        return true;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: this test needs root");
        return false;
    }
    let mut command = Command::new("unshare");
    command.args(namespaces).arg("--").arg(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("FREVO_INSIDE", "1");
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    eprintln!("{text}");
    false
}

/// Runs a program, and returns its output.
pub(crate) fn run(line: &str) -> String {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout).unwrap()
}
