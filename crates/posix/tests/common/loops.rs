//! File systems in images, for what the machine's own cannot do.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A file system mounted on a directory of its own until this is dropped.
pub struct Mounted {
    dir: TempDir,
}

impl Mounted {
    /// Makes and mounts one. `None`, with a word why, where that cannot be done:
    /// it needs root, loop devices, the kernel's file system and its mkfs.
    pub fn new(kind: &str, megabytes: u64, make: &[&str], options: &str) -> Option<Self> {
        let tried = Self::try_new(kind, megabytes, make, options);
        if let Err(why) = &tried {
            println!("left out: no {kind} can be mounted here: {why}");
        }
        tried.ok()
    }

    fn try_new(kind: &str, megabytes: u64, make: &[&str], options: &str) -> Result<Self, String> {
        let memory = PathBuf::from("/dev/shm");
        let dir = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        let mounted = Self { dir: dir.map_err(|error| error.to_string())? };
        let image = mounted.dir.path().join("image");
        let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(megabytes << 20).map_err(|error| error.to_string())?;
        std::fs::create_dir(mounted.path()).map_err(|error| error.to_string())?;
        let (image, path) = (image.to_str().unwrap(), mounted.path());
        run(&format!("mkfs.{kind}"), &[make, &[image]].concat())?;
        let path = path.to_str().unwrap();
        run("mount", &["-t", kind, "-o", options, image, path])?;
        Ok(mounted)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).stderr(Stdio::null()).status();
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
