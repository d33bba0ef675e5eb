//! Programs of the system, which are run by their paths, with fixed words and without an environment.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::fault::SnapshotFault;
use crate::limits::{OUTPUT_BYTES, PROGRAM_LOOKS, PROGRAM_PATIENCE};

/// The folders in which programs of administrators are.
const FOLDERS: [&str; 5] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin"];

/// A program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    path: PathBuf,
}

impl Program {
    /// Finds a program of the system. `package` is the one that has it.
    pub(crate) fn find(name: &str, package: &str) -> Result<Self, SnapshotFault> {
        let mut paths = FOLDERS.iter().map(|folder| Path::new(folder).join(name));
        let path = paths.find(|path| path.is_file()).ok_or_else(|| {
            SnapshotFault(format!("the program {name} is missing; install {package}"))
        })?;
        Ok(Self { path })
    }

    /// A program at a path.
    #[cfg(test)]
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Runs the program, and returns what it prints.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String, SnapshotFault> {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let shown = format!("{name} {}", words.join(" "));
        let failed = |error| SnapshotFault::of(&shown, error);
        let mut command = Command::new(&self.path);
        // A language of the messages, so that they read as in the documentation.
        command
            .args(words)
            .env_clear()
            .env("LC_ALL", "C")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir("/");
        let mut child = command.spawn().map_err(failed)?;
        // A pipe that nobody empties would stop the program.
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let printed = std::thread::scope(|threads| {
            let out = threads.spawn(|| taken(out));
            let err = threads.spawn(|| taken(err));
            let status = wait(&mut child);
            let join = |thread: std::thread::ScopedJoinHandle<'_, Vec<u8>>| {
                thread.join().unwrap_or_default()
            };
            (join(out), join(err), status)
        });
        let (out, err, status) = printed;
        let Some(status) = status.map_err(failed)? else {
            return Err(SnapshotFault::of(&shown, "no answer in time"));
        };
        if !status.success() {
            return Err(SnapshotFault::of(&shown, why(&String::from_utf8_lossy(&err), status)));
        }
        if out.len() as u64 > OUTPUT_BYTES {
            return Err(SnapshotFault::of(&shown, format!("more than {} MiB", OUTPUT_BYTES >> 20)));
        }
        String::from_utf8(out).map_err(|_| SnapshotFault::of(&shown, "an answer that is not UTF-8"))
    }
}

fn taken(pipe: Option<impl std::io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Without its words a fault of the program says less.
    let _ = pipe.map(|pipe| pipe.take(OUTPUT_BYTES + 1).read_to_end(&mut bytes));
    bytes
}

/// Waits for the end of a program. None if it was ended, because it took too long.
fn wait(child: &mut Child) -> std::io::Result<Option<ExitStatus>> {
    let until = Instant::now() + PROGRAM_PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            // It may have ended just now.
            let _ = child.kill();
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(PROGRAM_LOOKS);
    }
}

/// The reason that a program gives in its last line.
fn why(said: &str, status: ExitStatus) -> String {
    let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    last.map_or_else(|| status.to_string(), str::to_owned)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A program that notes its words, and says what a test has it say.
    pub(crate) struct Recorder(tempfile::TempDir);

    impl Recorder {
        pub(crate) fn new(said: &str) -> Self {
            let recorder = Self(tempfile::tempdir().unwrap());
            recorder.say(said);
            let folder = recorder.0.path().display();
            let script = format!(
                "#!/bin/sh\nprintf '%s|' \"$@\" >> {folder}/calls\necho >> {folder}/calls\ncat {folder}/said\n"
            );
            // A program does not start while a process has it open for writing, such as one that a thread
            // of another test is starting: another process makes the program.
            let draft = recorder.0.path().join("draft");
            std::fs::write(&draft, script).unwrap();
            std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o700)).unwrap();
            let done = Command::new("cp").arg("-p").args([draft, recorder.path()]).status();
            assert!(done.unwrap().success());
            recorder
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("program")
        }

        pub(crate) fn say(&self, said: &str) {
            std::fs::write(self.0.path().join("said"), said).unwrap();
        }

        pub(crate) fn program(&self) -> Program {
            Program::at(&self.path())
        }

        pub(crate) fn calls(&self) -> Vec<String> {
            let calls = std::fs::read_to_string(self.0.path().join("calls")).unwrap();
            calls.lines().map(str::to_owned).collect()
        }
    }

    #[test]
    fn programs_have_fixed_words_and_no_environment() {
        let env = Program::find("env", "coreutils").unwrap();
        let said = env.run(&[]).unwrap();
        assert_eq!(said.lines().count(), 2, "{said}");
        let echo = Program::find("echo", "coreutils").unwrap();
        assert_eq!(echo.run(&["$HOME; `id`", "*"]).unwrap(), "$HOME; `id` *\n");
        let fault = Program::find("no-such-program", "that-package").unwrap_err().to_string();
        assert_eq!(fault, "the program no-such-program is missing; install that-package");
    }

    #[test]
    fn a_fault_has_the_programs_last_words() {
        let cat = Program::find("cat", "coreutils").unwrap();
        let fault = cat.run(&["/no such file"]).unwrap_err().to_string();
        assert!(fault.starts_with("cat /no such file: "), "{fault}");
        assert!(fault.ends_with("'/no such file': No such file or directory"), "{fault}");
        let fault = Program::find("false", "coreutils").unwrap().run(&[]).unwrap_err().to_string();
        assert_eq!(fault, "false : exit status: 1");
        assert!(Program::at(Path::new("/no such program")).run(&[]).is_err());
    }
}
