//! Counts the instructions that a server executes in user space for one operation, under valgrind's
//! `callgrind`: exact, and free of the noise of other work on the machine.

mod page;
mod profile_file;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::common::Common;
use crate::proc;
use crate::rows::{Row, Unit};
use crate::server::{self, Kind, Programs};
use crate::share;
use crate::table::warmed;
use page::{Column, Page};
use profile_file::Costs;

/// Rows that are counted unless others are named.
const DEFAULT_ROWS: &str = "stat,create,open";

/// `frevo-bench instructions`
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Parts of row names, separated by commas.
    #[arg(long, default_value = DEFAULT_ROWS)]
    rows: String,
    /// Compare with this earlier `frevo`.
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
    /// A further argument for `serve` of the earlier `frevo` (repeatable).
    #[arg(long, allow_hyphen_values = true, requires = "before")]
    before_arg: Vec<String>,
    /// valgrind 3.24 or later; earlier ones lack openat2.
    #[arg(long, default_value = "valgrind")]
    valgrind: PathBuf,
    /// Seconds of the counted part of each row.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Seconds before it, which fill caches.
    #[arg(long, default_value_t = 3)]
    warm_up: u64,
    /// Functions and source files to list for each row.
    #[arg(long, default_value_t = 25)]
    lines: usize,
    /// Keep the files of callgrind here, for `callgrind_annotate`.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

/// Counts each row on each program; returns the page.
pub(crate) async fn run(args: &Arguments) -> Result<String> {
    let rows = Row::matching(Some(&args.rows));
    ensure!(!rows.is_empty(), "no row has that name");
    ensure!(!rows.contains(&Row::Memory), "memory is not a timed row");
    let now = args.common.programs();
    let mut programs = vec![("after".to_owned(), now.clone())];
    if let Some(before) = &args.before {
        let frevo_args = args.before_arg.clone();
        let earlier = Programs { frevo: before.clone(), frevo_args, ..now };
        programs.insert(0, ("before".to_owned(), earlier));
    }
    let scratch = args.common.scratch()?;
    let share = share::prepare(scratch.path(), rows.contains(&Row::List))?;
    let mut page = Page::new(args.lines, proc::machine(scratch.path()));
    for (label, programs) in &programs {
        page.program(label, &server::version(&programs.frevo));
    }
    for row in rows {
        let mut columns = Vec::new();
        for (label, programs) in &programs {
            let one =
                Counted { args, row, label, programs, share: &share, scratch: scratch.path() };
            columns.push(one.column().await.with_context(|| format!("{}, {label}", row.name()))?);
        }
        page.row(row, &columns);
    }
    Ok(page.markdown())
}

/// One row on one program.
struct Counted<'a> {
    args: &'a Arguments,
    row: Row,
    label: &'a str,
    programs: &'a Programs,
    share: &'a Path,
    scratch: &'a Path,
}

impl Counted<'_> {
    async fn column(&self) -> Result<Column> {
        let name = format!("{}-{}", self.row.name(), self.label);
        let out =
            self.args.keep.as_deref().unwrap_or(self.scratch).join(format!("{name}.callgrind"));
        let script = self.scratch.join(format!("{name}.sh"));
        self.write_script(&script, &out)?;
        let programs = Programs { frevo: script, ..self.programs.clone() };
        let peer = server::start(Kind::Frevo, &name, self.share, self.scratch, &programs)?;
        let warm_up = Duration::from_secs(self.args.warm_up);
        let mut load = warmed(self.row, &peer, self.share, warm_up).await?;
        self.tell(peer.pid(), &["instrumentation", "on"])?;
        // In the first round valgrind translates the code, so the counters are zeroed after it.
        load.round(&peer, Duration::from_millis(500)).await?;
        self.tell(peer.pid(), &["zero"])?;
        let round = load.round(&peer, Duration::from_secs(self.args.seconds)).await?;
        self.tell(peer.pid(), &["dump"])?;
        load.finish().await?;
        drop(peer);
        let dumped = out.with_extension("callgrind.1");
        let text =
            fs::read_to_string(&dumped).with_context(|| format!("reading {}", dumped.display()))?;
        let operations = match self.row.unit() {
            Unit::Bytes => round.count as f64 / share::BLOCK_LEN as f64,
            _ => round.count as f64,
        };
        ensure!(operations > 0.0, "no operation ran");
        Ok(Column { label: self.label.to_owned(), operations, costs: Costs::parse(&text) })
    }

    /// The program that is started in the place of `frevo`.
    fn write_script(&self, script: &Path, out: &Path) -> Result<()> {
        let text = format!(
            "#!/bin/sh\nexec '{}' --tool=callgrind --instr-atstart=no --collect-systime=no \
             --vgdb-prefix='{}/vgdb' --callgrind-out-file='{}' '{}' \"$@\"\n",
            self.args.valgrind.display(),
            self.scratch.display(),
            out.display(),
            self.programs.frevo.display(),
        );
        fs::write(script, text)?;
        Ok(fs::set_permissions(script, fs::Permissions::from_mode(0o755))?)
    }

    /// Sends a command to callgrind in the process `pid`.
    fn tell(&self, pid: u32, words: &[&str]) -> Result<()> {
        let vgdb = self.args.valgrind.with_file_name("vgdb");
        let vgdb = if vgdb.exists() { vgdb } else { PathBuf::from("vgdb") };
        let done = Command::new(vgdb)
            .arg(format!("--pid={pid}"))
            .arg(format!("--vgdb-prefix={}/vgdb", self.scratch.display()))
            .args(words)
            .stdin(Stdio::null())
            .output()
            .context("starting vgdb")?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "vgdb {}: {}", words.join(" "), said.trim());
        Ok(())
    }
}
